"""A simulated cluster on each database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.db.database import Database


@pytest.fixture
async def cluster(database: Database, tmp_path: Path) -> AsyncIterator[SimulatedCluster]:
    """A coordinator under a fake clock, without nodes."""
    cluster = SimulatedCluster(database, tmp_path / "coordinator")
    yield cluster
    await cluster.close()
