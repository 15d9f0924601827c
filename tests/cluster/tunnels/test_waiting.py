"""Tickets of tunnels: secret, of one node, shown once."""

import asyncio

from trainhall.cluster.tunnels.waiting import WaitingTunnels
from trainhall.cluster.wire.tunnel import Socket


class Connection(Socket):
    async def send(self, message: str | bytes) -> None:
        raise NotImplementedError

    async def receive(self) -> str | bytes:
        raise NotImplementedError


async def test_ticket_counts_once_and_for_its_node() -> None:
    waiting, socket = WaitingTunnels(), Connection()
    async with waiting.expect("n1") as came:
        (ticket,) = waiting.tickets("n1")
        assert waiting.tickets("n2") == []
        assert not await waiting.hand_over("n2", ticket, socket)
        assert not await waiting.hand_over("n1", "guessed", socket)
        handed = asyncio.create_task(waiting.hand_over("n1", ticket, socket))
        assert await came is socket
        assert waiting.tickets("n1") == []
        assert not await waiting.hand_over("n1", ticket, socket)
        assert not handed.done()
    assert await handed


async def test_ticket_ends_with_its_waiter() -> None:
    waiting = WaitingTunnels()
    async with waiting.expect("n1"):
        (ticket,) = waiting.tickets("n1")
    assert waiting.tickets("n1") == []
    assert not await waiting.hand_over("n1", ticket, Connection())
