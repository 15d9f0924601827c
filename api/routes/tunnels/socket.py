"""A websocket of the server as one side of a tunnel."""

from starlette.websockets import WebSocket, WebSocketDisconnect

from trainhall.cluster.gateway.channel import close_reason
from trainhall.cluster.wire.tunnel import MAX_MESSAGE, TunnelClosedError, TunnelError


class SocketSide:
    """A `cluster.wire.tunnel.Socket`.

    Raises:
        TunnelError: a message is too long.
    """

    def __init__(self, websocket: WebSocket, max_bytes: int = MAX_MESSAGE) -> None:
        self._websocket = websocket
        self._max_bytes = max_bytes
        self._closed = False

    async def send(self, message: str | bytes) -> None:
        try:
            if isinstance(message, str):
                await self._websocket.send_text(message)
            else:
                await self._websocket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise TunnelClosedError(str(error)) from None

    async def receive(self) -> str | bytes:
        try:
            event = await self._websocket.receive()
        except RuntimeError as error:
            raise TunnelClosedError(str(error)) from None
        if event["type"] != "websocket.receive":
            raise TunnelClosedError(event.get("reason") or "the other side left")
        message: str | bytes | None = event.get("text")
        if message is None:
            message = event["bytes"]
        if len(message) > self._max_bytes:
            raise TunnelError(f"a message has at most {self._max_bytes} bytes")
        return message

    async def close(self, code: int, reason: str = "") -> None:
        """Close it; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._websocket.close(code, close_reason(reason))
        except (WebSocketDisconnect, RuntimeError):
            return  # the other side was quicker
