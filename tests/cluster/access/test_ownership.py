"""The project that a job or code is given to."""

import asyncio

import pytest
from sqlalchemy import select

from trainhall.cluster.access.ownership import check_project
from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.ports import SystemClock
from trainhall.db.accounts import Project
from trainhall.db.database import Database


@pytest.mark.side_by_side
async def test_requests_may_name_a_new_project_at_once(database: Database) -> None:
    async def name_it() -> None:
        async with database.transaction() as session:
            await check_project(session, SYSTEM, "vision", SystemClock())

    await asyncio.gather(*(name_it() for _ in range(4)))
    async with database.session() as session:
        names = await session.scalars(select(Project.name).where(Project.name == "vision"))
        assert names.all() == ["vision"]
