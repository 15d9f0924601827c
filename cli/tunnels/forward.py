"""Connections to a port of this host, passed on to one beside a rank."""

import asyncio
from collections.abc import Callable

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.output import notice, one_line
from trainhall.cli.tunnels.connection import Session, open_session
from trainhall.cluster.wire.tunnel import TunnelClosedError, splice

LOOPBACK = "127.0.0.1"


async def forward(client: Client, path: str, local: int, on_open: Callable[[int], None]) -> None:
    """Listen on this host's loopback address until the session is over.

    Args:
        path: of the session, below /api/v1.
        local: the port; 0: a free one.
        on_open: gets the port that is open now.

    Raises:
        CliError: the session cannot begin, or has ended.
        UsageError: the port is taken.
    """
    started = asyncio.Event()
    async with open_session(client, path, started.set) as session:
        connections = _Connections(session)
        try:
            server = await asyncio.start_server(connections.serve, LOOPBACK, local)
        except OSError as error:
            raise UsageError(
                f"port {local} of this host cannot be opened: {error.strerror or error}; give "
                "another one, as in 8888:9999, or 8888:0 for a free one"
            ) from None
        async with server:
            receiving = asyncio.create_task(session.tunnel.run())
            beginning = asyncio.create_task(started.wait())
            try:
                await asyncio.wait({receiving, beginning}, return_when=asyncio.FIRST_COMPLETED)
                if beginning.done():
                    on_open(server.sockets[0].getsockname()[1])
                await receiving
            finally:
                receiving.cancel()
                beginning.cancel()
                await connections.close()
        session.check_end()


class _Connections:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            stream = await self._session.tunnel.open()
            await splice(stream, reader, writer, self._report)
        except TunnelClosedError:
            writer.transport.abort()

    def _report(self, reason: str) -> None:
        """Say once why connections are not passed on."""
        if reason not in self._reported:
            self._reported.add(reason)
            notice(one_line(reason))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
