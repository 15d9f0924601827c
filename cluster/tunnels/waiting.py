"""Tunnels that agents are asked for, until each has come."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trainhall.cluster.wire.tunnel import Socket


@dataclass(eq=False)
class _Expected:
    node_id: str
    came: asyncio.Future[Socket]
    over: asyncio.Event = field(default_factory=asyncio.Event)


class WaitingTunnels:
    """Tickets by node. A ticket is a secret that one agent may show once."""

    def __init__(self) -> None:
        self._expected: dict[str, _Expected] = {}

    def tickets(self, node_id: str) -> list[str]:
        """Return the tickets that a node has yet to show."""
        return [ticket for ticket, each in self._expected.items() if each.node_id == node_id]

    @asynccontextmanager
    async def expect(self, node_id: str) -> AsyncIterator[asyncio.Future[Socket]]:
        """Ask a node for a tunnel; gives its socket, once it has come, until the block ends."""
        ticket = secrets.token_urlsafe(24)
        expected = _Expected(node_id, asyncio.get_running_loop().create_future())
        self._expected[ticket] = expected
        try:
            yield expected.came
        finally:
            self._expected.pop(ticket, None)
            expected.came.cancel()
            expected.over.set()

    async def hand_over(self, node_id: str, ticket: str, socket: Socket) -> bool:
        """Hand over a socket that a node has opened, and wait until it is not used any more.

        Returns:
            False if the node was not asked for it, or has shown the ticket before.
        """
        expected = self._expected.get(ticket)
        if expected is None or expected.node_id != node_id:
            return False
        del self._expected[ticket]
        if not expected.came.done():
            expected.came.set_result(socket)
            await expected.over.wait()
        return True
