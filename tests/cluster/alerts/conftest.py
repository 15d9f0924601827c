"""A simulated cluster whose alerts may reach this host."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.options import AlertOptions
from trainhall.db.database import Database


@pytest.fixture
async def cluster(database: Database, tmp_path: Path) -> AsyncIterator[SimulatedCluster]:
    cluster = SimulatedCluster(database, tmp_path / "coordinator")
    options = AlertOptions(private_targets=True, dashboard_url="http://hall")
    cluster.options = replace(cluster.options, alerts=options)
    cluster.start_coordinator()
    yield cluster
    await cluster.close()
