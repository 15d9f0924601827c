"""The database as it is, threads and all."""

from collections.abc import AsyncIterator

import pytest

from trainhall.db.database import Database


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Takes the place of one that costs less."""
    opened = Database(database_url)
    yield opened
    await opened.close()
