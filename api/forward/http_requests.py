"""HTTP requests of browsers, passed on to a program beside a job as they come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpcore
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from trainhall.api.forward import headers
from trainhall.cluster.wire.tunnel import Stream, StreamResetError, TunnelClosedError

_BREAKS = (StreamResetError, TunnelClosedError, httpcore.ProtocolError)


class NoAnswerError(Exception):
    """The program gave no answer; the message says why."""


class _Connection(httpcore.AsyncNetworkStream):
    """A stream of a tunnel as a connection."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._unread = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = self._unread or await self._stream.read()
        self._unread = data[max_bytes:]
        return data[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            await self._stream.write(buffer)
        except StreamResetError as error:
            # A program may answer, and close, before it has read all of a body: its answer is read.
            raise httpcore.WriteError(str(error)) from None

    async def aclose(self) -> None:
        """Do nothing: who opened the stream closes it."""

    def get_extra_info(self, info: str) -> Any:
        return None


async def pass_request(
    scope: Scope, receive: Receive, send: Send, stream: Stream, port: int
) -> None:
    """Pass one request on, and its answer back.

    Raises:
        NoAnswerError: there is none; nothing was sent to the browser.
    """
    request = Request(scope, receive)
    origin = httpcore.Origin(b"http", b"127.0.0.1", port)
    pairs = [(b"host", f"127.0.0.1:{port}".encode()), *headers.to_program(request.headers, port)]
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    if has_body and "content-length" not in request.headers:
        pairs.append((b"transfer-encoding", b"chunked"))
    asked = httpcore.Request(
        scope["method"],
        httpcore.URL(scheme=b"http", host=b"127.0.0.1", port=port, target=target_of(scope)),
        headers=[*pairs, (b"connection", b"close")],
        content=_body(request) if has_body else b"",
    )
    async with httpcore.AsyncHTTP11Connection(origin, _Connection(stream)) as connection:
        try:
            answer = await connection.handle_async_request(asked)
        except _BREAKS as error:
            raise NoAnswerError(str(error) or "the connection broke") from None
        except ClientDisconnect:
            return
        await _answer(request, send, answer, port)


async def _answer(request: Request, send: Send, answer: httpcore.Response, port: int) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": headers.to_browser(answer.headers, port),
        }
    )

    async def pass_body() -> None:
        async for chunk in answer.aiter_stream():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    passing = asyncio.create_task(pass_body())
    leaving = asyncio.create_task(_until_left(request))
    try:
        await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if passing.done():
            # Without its end: the browser's connection is closed, and shows that it broke.
            with suppress(*_BREAKS):
                passing.result()
    finally:
        for task in (passing, leaving):
            task.cancel()
        await asyncio.gather(passing, leaving, return_exceptions=True)


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        if chunk:
            yield chunk


def target_of(scope: Scope) -> bytes:
    """Return the path and the query of a request as they came."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path
