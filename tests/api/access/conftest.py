"""An application that asks for credentials, with two projects."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update
from support.access.projects import Projects
from support.access.world import OWN, Things, World

from trainhall.db.documents import Allocation, NodeAllocation, RankPlacement
from trainhall.db.models import Attempt, Job


@pytest.fixture
async def projects(
    inline_database: None, make_app: Callable[..., FastAPI]
) -> AsyncIterator[Projects]:
    """Two projects behind the application's routes."""
    # No agent speaks for the node; it is not given up all the same.
    app = make_app(auth="token", suspect_after=3600, lost_after=7200, forward_domain="fwd.test")
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield Projects(app, await World.make(app.state.coordinator), client)


@pytest.fixture
async def running(projects: Projects) -> Things:
    """A member's job that runs on a node, whose agent is the test."""
    things = await projects.world.add(OWN, "member")
    hosts = Allocation([NodeAllocation("n1", "gpu-1", 0, (RankPlacement(0), RankPlacement(1)))])
    async with projects.coordinator.db.transaction() as session:
        await session.execute(
            update(Attempt).where(Attempt.job_id == things.job).values(allocation=hosts)
        )
        await session.execute(update(Job).where(Job.id == things.job).values(state="running"))
    # No reconciler gives the attempt up meanwhile.
    await projects.coordinator.reconciler.stop()
    return things
