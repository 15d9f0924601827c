"""Tunnels to a node whose agent is the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select
from support.access.projects import Projects
from support.cluster.agent_process import until

from trainhall.cluster.wire.tunnel import TunnelClosedError
from trainhall.db.accounts import AuditEntry


class Host:
    """The websocket of an agent, without an agent."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[str | bytes] = asyncio.Queue()
        self.sent: asyncio.Queue[str | bytes | None] = asyncio.Queue()

    async def send(self, message: str | bytes) -> None:
        self.received.put_nowait(message)

    async def receive(self) -> str | bytes:
        message = await self.sent.get()
        if message is None:
            raise TunnelClosedError("over")
        return message


@asynccontextmanager
async def tunnel_of(projects: Projects) -> AsyncIterator[Host]:
    """The tunnel that node n1 is asked for."""
    waiting, host = projects.coordinator.waiting_tunnels, Host()
    tickets = await until("a ticket", lambda: waiting.tickets("n1"))
    handed = asyncio.create_task(waiting.hand_over("n1", tickets[0], host))
    yield host
    async with asyncio.timeout(10):
        assert await handed


async def audited(projects: Projects, action: str) -> list[Any]:
    async with projects.coordinator.db.session() as session:
        rows = await session.scalars(select(AuditEntry).where(AuditEntry.action == action))
        return [(row.user, row.outcome, row.detail) for row in rows]
