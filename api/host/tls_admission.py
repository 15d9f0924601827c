"""TLS connections that are counted by address before their handshake.

An event loop shows a server its TLS connections only after the handshake, so that any number of
silent ones could be open. Here they are accepted one by one, and TLS begins afterwards.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from trainhall.api.host.connection_table import ConnectionTable

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.1
"""Between attempts to accept where the system has no descriptor left."""


class TlsServer:
    """Server in place of an `asyncio.Server`, as far as uvicorn uses it: it accepts on a socket.

    Args:
        serve: makes the protocol that a connection speaks over TLS.
    """

    def __init__(
        self,
        serve: Callable[[], Any],
        listener: socket.socket,
        context: ssl.SSLContext,
        table: ConnectionTable,
    ) -> None:
        self.sockets = (listener,)
        self._serve = serve
        self._listener = listener
        self._context = context
        self._table = table
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[_Handshake] = set()
        listener.setblocking(False)
        self._accepting = self._loop.create_task(self._accept(), name="accept TLS")

    def close(self) -> None:
        """Accept no more, and end the handshakes."""
        self._accepting.cancel()
        for handshake in list(self._handshakes):
            handshake.close_idle()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            try:
                connection, peer = await self._loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("connection_not_accepted", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            address = str(peer[0]) if isinstance(peer, tuple) else None
            if self._table.has_room(connection.fileno()) and self._table.handshakes.enter(address):
                handshake = _Handshake(self._shake_hands(connection), address, self._table)
                self._handshakes.add(handshake)
                handshake.task.add_done_callback(partial(self._forget, handshake))
            else:
                connection.close()

    def _forget(self, handshake: "_Handshake", _: "asyncio.Task[None]") -> None:
        self._handshakes.discard(handshake)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._serve, connection, ssl=self._context,
                ssl_handshake_timeout=self._table.limits.head_seconds,
            )  # fmt: skip
        except OSError:
            connection.close()  # it left, speaks no TLS, or took too long


class _Handshake:
    """A connection until its handshake has ended; it is one of those that wait."""

    def __init__(self, work: Any, address: str | None, table: ConnectionTable) -> None:
        self._address = address
        self._table = table
        self._since = table.now
        loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None] = loop.create_task(work, name="TLS handshake")
        self.task.add_done_callback(self._ended)
        table.watch(self, loop)

    def _ended(self, _: "asyncio.Task[None]") -> None:
        self._table.waiting.discard(self)
        self._table.handshakes.leave(self._address)

    def check_time(self, now: int) -> None:
        """Do nothing: the loop ends a late handshake."""

    def idle_since(self, now: int) -> tuple[int, int] | None:
        return 0, self._since

    def close_idle(self) -> None:
        self._table.waiting.discard(self)
        self.task.cancel()
