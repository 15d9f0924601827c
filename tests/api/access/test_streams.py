"""A job's stream is for those who may see the job, as long as they may."""

import asyncio

import pytest
from sqlalchemy import delete
from support.access.projects import Projects
from support.access.sockets import OPEN, Socket
from support.access.world import OWN

from trainhall.api.login import authentication
from trainhall.cluster.accounts import lookup
from trainhall.db.accounts import Member


async def test_stream_ends_with_the_role(
    projects: Projects, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authentication.RECHECK_SECONDS < 5
    monkeypatch.setattr(authentication, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(lookup, "CACHE_SECONDS", 0.0)
    things = await projects.world.add(OWN, "colleague")
    path = f"/api/v1/metrics/stream/{things.job}"
    async with (
        Socket(projects.app, path, projects.header("viewer")) as viewer,
        Socket(projects.app, path, projects.header("member")) as member,
    ):
        assert (await viewer.outcome())[0] == (await member.outcome())[0] == OPEN
        async with projects.coordinator.db.transaction() as session:
            await session.execute(delete(Member).where(Member.id == "m-viewer"))
        async with asyncio.timeout(10):
            while (outcome := await viewer.outcome())[0] == OPEN:
                pass
        assert outcome[0] == 1008
        await projects.coordinator.jobs.cancel(things.job)
        async with asyncio.timeout(10):
            while "cancelled" not in (outcome := await member.outcome())[1]:
                assert outcome[0] == OPEN
