"""The tunnel of one user to one port of a job: opened when it is used, closed some time later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import structlog

from trainhall.api.forward.origins import JobPort
from trainhall.api.limits import Turns
from trainhall.api.login.authentication import Lookup, until_changed
from trainhall.api.login.services import LimitedServices
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.tunnels.service import NoTunnelError
from trainhall.cluster.waiting import end_tasks
from trainhall.cluster.wire.tunnel import Socket, Stream, Tunnel, TunnelClosedError, TunnelError

log = structlog.get_logger(__name__)

RANK = 0
UNUSED_SECONDS = 60.0
"""A tunnel without a connection is closed after so long."""
CHECK_SECONDS = 2.0
START_SECONDS = 20.0
_ENDS = (NoTunnelError, TunnelClosedError, TunnelError)


class PortTunnel:
    """Connections to a port, for a user as long as they may.

    Args:
        find: looks the user's credential up again; None: they needed none.
        turns: of the sessions that `caller` may have open.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        place: JobPort,
        principal: Principal,
        find: Lookup | None,
        turns: Turns,
        caller: str,
    ) -> None:
        self._coordinator, self._place = coordinator, place
        self._principal, self._find = principal, find
        self._turns, self._caller = turns, caller
        self._opening = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._tunnel: Tunnel | None = None
        self._connections = 0
        self._used_at = 0.0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Stream]:
        """Open a connection to the port, which is closed at the end.

        Raises:
            RefusalError: the user may not any more, or has too many sessions.
            ClusterError: as of `TunnelService.beside_rank`.
            NoTunnelError: the node does not open the tunnel.
        """
        self._connections += 1  # so that it is not closed meanwhile
        try:
            async with self._opening:
                if self._tunnel is None:
                    await self._open()
                tunnel = self._tunnel
            if tunnel is None:
                raise NoTunnelError("the session has ended")
            stream = await tunnel.open()
            try:
                yield stream
            finally:
                with suppress(TunnelClosedError):
                    await stream.reset("closed")
        finally:
            self._connections -= 1
            self._used_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        if self._serving is not None:
            await end_tasks([self._serving])

    async def _open(self) -> None:
        if self._find is not None:
            principal = await self._find()
            if principal is None:
                raise RefusalError(401, "not-authenticated", "you are logged out: log in again")
            self._principal = replace(principal, address=self._principal.address)
        services = LimitedServices(self._coordinator, self._principal)
        beside = await services.tunnels.beside_rank(self._place.job_id, RANK)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            try:
                async with (
                    self._turns.turn(self._caller),
                    services.tunnels.forward(beside, RANK, self._place.port) as socket,
                ):
                    await self._serve(socket, opened)
            except Exception as error:
                if not opened.done():
                    opened.set_exception(error)
                elif not isinstance(error, (*_ENDS, RefusalError)):
                    log.exception("forwarded_port_failed", job=self._place.job_id)
            finally:
                opened.cancel()

        self._serving = asyncio.create_task(serve(), name="forwarded port")
        await opened

    async def _serve(self, socket: Socket, opened: "asyncio.Future[None]") -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(message: dict[str, Any]) -> None:
            if started.done():
                return
            if message.get("type") == "started":
                started.set_result(None)
            elif message.get("type") == "error":
                started.set_exception(NoTunnelError(str(message.get("detail", ""))[:500]))

        timed = _TimedSocket(socket)
        tunnel = Tunnel(timed, take)
        running = asyncio.create_task(tunnel.run())
        watching = [
            asyncio.create_task(until_changed(self._find, self._principal)),
            asyncio.create_task(self._until_unused(timed)),
        ]
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                raise NoTunnelError("the session has ended with its attempt, or with its agent")
            started.result()
            self._tunnel = tunnel
            if not opened.done():  # who asked for it may have left
                opened.set_result(None)
            await asyncio.wait({running, *watching}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise NoTunnelError(f"the node began no session within {START_SECONDS:g} s") from None
        finally:
            # Another one may be open, if who asked for this one left before it began.
            if self._tunnel is tunnel:
                self._tunnel = None
            started.cancel()
            await end_tasks([running, *watching])

    async def _until_unused(self, socket: "_TimedSocket") -> None:
        loop = asyncio.get_running_loop()
        self._used_at = loop.time()
        idle_seconds = self._coordinator.options.exec_idle_seconds
        while True:
            await asyncio.sleep(min(CHECK_SECONDS, idle_seconds))
            now = loop.time()
            if now - socket.used_at > idle_seconds:
                return
            if not self._connections and now - self._used_at > UNUSED_SECONDS:
                return


class _TimedSocket:
    """A socket that knows when something has passed."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.used_at = asyncio.get_running_loop().time()

    async def send(self, message: str | bytes) -> None:
        self.used_at = asyncio.get_running_loop().time()
        await self._socket.send(message)

    async def receive(self) -> str | bytes:
        message = await self._socket.receive()
        self.used_at = asyncio.get_running_loop().time()
        return message
