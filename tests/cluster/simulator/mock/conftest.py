"""A simulated cluster whose time a test lets pass."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.working import WorkingCluster

from trainhall.db.database import Database


@pytest.fixture
async def hall(database: Database, tmp_path: Path) -> AsyncIterator[WorkingCluster]:
    """Two hosts with four GPUs each."""
    cluster = await WorkingCluster.started(database, tmp_path)
    yield cluster
    await cluster.close()


@pytest.fixture
async def sqlite_twins(
    sqlite_template: Path, tmp_path: Path
) -> AsyncIterator[tuple[Database, Database]]:
    """Two databases with empty tables."""
    paths = [tmp_path / f"{name}.db" for name in ("one", "other")]
    for path in paths:
        shutil.copyfile(sqlite_template, path)
    one, other = (Database(f"sqlite:///{path}") for path in paths)
    yield one, other
    await one.close()
    await other.close()
