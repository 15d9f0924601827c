"""Websockets with limits that the library has not: pieces of a message, pings, connections."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame
from websockets.protocol import State

from trainhall.api.host.bounded_http import BoundedConfig
from trainhall.api.host.connection_table import UnreadOutput

_MAX_FRAGMENTS = 1024
"""Each takes memory beside its bytes, even an empty one."""
_MAX_PINGS = 100
"""Pings of a connection in a second; libraries send one in 20 s."""
_POLICY = 1008


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A websocket, counted among its address's connections."""

    def __init__(self, config: BoundedConfig, server_state: ServerState, app_state: Any) -> None:
        super().__init__(config, server_state, app_state)
        self._table = config.table
        self._address: str | None = None
        self._counted = False
        self._pings = 0
        self._pinged_at = 0
        self._unread = UnreadOutput(self._table.now)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else None
        # It has just left as a connection of HTTP, so there is room for it.
        self._counted = self._table.connections.enter(self._address)
        self._table.watch(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.waiting.discard(self)
        if self._counted:
            self._counted = False
            self._table.connections.leave(self._address)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End it with the server. uvicorn's own fails where the other side has just closed it."""
        if self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN:
            self.stop_keepalive()
            self.transport.close()
            return
        super().shutdown()

    def check_time(self, now: int) -> None:
        """End it, if what was sent to it is not read."""
        if self._unread.ticks(self.transport, now) > self._table.body_ticks:
            self.transport.abort()

    def idle_since(self, now: int) -> tuple[int, int] | None:
        """Return None: it is never closed for others."""
        return None

    def close_idle(self) -> None:
        """Close it."""
        self.transport.abort()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= _MAX_FRAGMENTS:
            self._fail(f"a message has at most {_MAX_FRAGMENTS} fragments")
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        now = int(self.loop.time())
        self._pings = self._pings + 1 if self._pinged_at == now else 1
        self._pinged_at = now
        if self._pings > _MAX_PINGS:
            self._fail("too many pings")
            return
        super().handle_ping()

    def _fail(self, reason: str) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(_POLICY, reason)
        self.handle_parser_exception()
