"""A viewer of a websocket, without a server."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from fastapi import FastAPI

OPEN = 101
"""Status of an upgrade."""


class Socket:
    """A websocket's viewer, who sends nothing unless asked to."""

    def __init__(
        self, app: FastAPI, path: str, headers: Mapping[str, str], query: bytes = b"after=0"
    ) -> None:
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "websocket", "path": path, "raw_path": path.encode(),
            "query_string": query,
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"host": "127.0.0.1:8000", **headers}.items()
            ],
            "scheme": "ws", "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 40000),
            "subprotocols": [], "root_path": "", "http_version": "1.1",
            "extensions": {"websocket.http.response": {}},
        }  # fmt: skip
        self.received: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._sent: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()

    async def __aenter__(self) -> "Socket":
        self._sent.put_nowait({"type": "websocket.connect"})
        self._task = asyncio.create_task(
            self._app(self._scope, self._sent.get, self.received.put), name="socket"
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sent.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self._task, 10)

    def send(self, message: str | bytes) -> None:
        """Send a message to the application."""
        kind = "text" if isinstance(message, str) else "bytes"
        self._sent.put_nowait({"type": "websocket.receive", kind: message})

    async def next(self) -> MutableMapping[str, Any]:
        """The next message of the application."""
        return await asyncio.wait_for(self.received.get(), 10)

    async def outcome(self) -> tuple[int, str]:
        """The status of a refusal, the code of a close, or OPEN; and all that was received."""
        text = ""
        while True:
            message = await self.next()
            text += repr(message)
            match message["type"]:
                case "websocket.http.response.start":
                    status = int(message["status"])
                case "websocket.http.response.body":
                    return status, text
                case "websocket.close":
                    return int(message["code"]), text
                case "websocket.send":
                    return OPEN, text
