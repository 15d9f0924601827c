"""HTTP requests that are passed on to a program."""

import asyncio
from typing import Any, cast

from trainhall.api.forward.http_requests import pass_request
from trainhall.cluster.wire.tunnel import Stream, StreamResetError

ANSWER = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge"


class _Stream:
    """A program that answers and closes as soon as it has the head of a request."""

    def __init__(self) -> None:
        self._written = 0
        self._answers = [ANSWER]

    async def write(self, data: bytes) -> None:
        self._written += 1
        if self._written > 1:
            raise StreamResetError("the connection broke")

    async def read(self) -> bytes:
        return self._answers.pop() if self._answers else b""


async def test_answer_before_the_end_of_the_body_passes() -> None:
    sent: list[dict[str, Any]] = []

    requests = [{"type": "http.request", "body": b"x" * 1000, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return requests.pop() if requests else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/upload", "query_string": b"",
        "headers": [(b"host", b"a-1.fwd.test"), (b"content-length", b"1000")],
    }  # fmt: skip
    await pass_request(scope, receive, send, cast(Stream, _Stream()), 8888)
    assert sent[0]["status"] == 413
    assert b"".join(message.get("body", b"") for message in sent) == b"large"
