"""Websockets of browsers, passed on to a program beside a job message by message."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from trainhall.api.forward import headers
from trainhall.api.forward.http_requests import NoAnswerError, target_of
from trainhall.cluster.gateway.channel import close_reason
from trainhall.cluster.waiting import end_tasks, run_until_one_ends
from trainhall.cluster.wire.tunnel import Stream, splice

MAX_BYTES = 64 * 2**20
"""Limit of one message of a program."""
OPEN_SECONDS = 20.0
_NO_CODE, _BROKEN = 1005, 1006
"""Codes that no side may send."""


async def pass_websocket(websocket: WebSocket, stream: Stream, port: int) -> None:
    """Pass messages on until either side leaves.

    Raises:
        NoAnswerError: the program does not take it, which has not been accepted.
    """
    async with _connection(websocket, stream, port) as program:
        await websocket.accept(program.subprotocol)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await run_until_one_ends(
                _to_program(websocket, program), _to_browser(program, websocket)
            )


@asynccontextmanager
async def _connection(
    websocket: WebSocket, stream: Stream, port: int
) -> AsyncIterator[ClientConnection]:
    reasons: list[str] = []
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    splicing = asyncio.create_task(splice(stream, reader, writer, reasons.append))
    pairs = headers.to_program(websocket.headers, port)
    try:
        program = await connect(
            f"ws://127.0.0.1:{port}{target_of(websocket.scope).decode('latin-1')}",
            sock=theirs,
            subprotocols=[Subprotocol(name) for name in websocket.scope["subprotocols"]] or None,
            additional_headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in pairs],
            user_agent_header=None,
            compression=None,
            max_size=MAX_BYTES,
            open_timeout=OPEN_SECONDS,
            close_timeout=1,
            ping_interval=None,
            proxy=None,
        )
        async with program:
            yield program
    except (InvalidHandshake, OSError, EOFError, TimeoutError) as error:
        raise NoAnswerError(reasons[0] if reasons else str(error)) from None
    finally:
        theirs.close()
        await end_tasks([splicing])


async def _to_program(websocket: WebSocket, program: ClientConnection) -> None:
    while True:
        event = await websocket.receive()
        if event["type"] == "websocket.disconnect":
            code = event.get("code", _NO_CODE)
            await program.close(1000 if code in (_NO_CODE, _BROKEN) else code)
            return
        text = event.get("text")
        with contextlib.suppress(ConnectionClosed):  # the other direction says so
            await program.send(event["bytes"] if text is None else text)


async def _to_browser(program: ClientConnection, websocket: WebSocket) -> None:
    try:
        while True:
            message = await program.recv()
            if isinstance(message, str):
                await websocket.send_text(message)
            else:
                await websocket.send_bytes(message)
    except ConnectionClosed:
        code = program.close_code or _NO_CODE
        code = {_NO_CODE: 1000, _BROKEN: 1011}.get(code, code)
        await websocket.close(code, close_reason(program.close_reason or ""))
