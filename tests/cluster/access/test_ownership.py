"""The project that a job or code is given to."""

import asyncio
import unicodedata

import pytest
from sqlalchemy import select

from trainhall.cluster.access.ownership import check_project, submission_project
from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.errors import ConflictError, InvalidValueError
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


@pytest.mark.parametrize("name", ["a/b", "..", "me", "x\u202e", " led"])
async def test_new_project_has_an_allowed_name(database: Database, name: str) -> None:
    async with database.transaction() as session:
        with pytest.raises(InvalidValueError, match=r"^project\b|reserved|must not"):
            await check_project(session, SYSTEM, name, SystemClock())


async def test_projects_differ_by_more_than_case(database: Database) -> None:
    async with database.transaction() as session:
        await check_project(session, SYSTEM, "vision", SystemClock())
        with pytest.raises(ConflictError, match="'vision' already"):
            await check_project(session, SYSTEM, "Vision", SystemClock())


async def test_project_is_named_in_composed_letters(database: Database) -> None:
    async with database.transaction() as session:
        names = {
            await submission_project(
                session, SYSTEM, unicodedata.normalize(form, "é"), SystemClock()
            )
            for form in ("NFC", "NFD")
        }
    assert names == {"\N{LATIN SMALL LETTER E WITH ACUTE}"}
