"""How mock mode starts: an opening that fails or is cancelled leaves nothing in use."""

import asyncio
import logging
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.mock_history import shorten_history

from trainhall.cluster.agent.coordinator_link import connection
from trainhall.cluster.simulator.database import Disk
from trainhall.cluster.simulator.mock import coordinator
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.coordinator import mock_coordinator
from trainhall.cluster.simulator.mock.scenario import Scenario


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logger = logging.getLogger(connection.__name__)
    level = logger.level
    yield tmp_path
    logger.setLevel(level)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Disk]:
    """The databases of openings that were closed."""
    found: list[Disk] = []
    close = Disk.close

    def note(self: Disk) -> None:
        close(self)
        found.append(self)

    monkeypatch.setattr(Disk, "close", note)
    return found


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def started() -> None:
    """Start mock mode, and end it at once."""
    async with mock_coordinator(None, lambda name, error: None):
        pass


async def test_failing_opening_shows_its_own_error(
    temporary: Path, closed: list[Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Scenario, now: float) -> None:
        raise RuntimeError("the opening failed")

    monkeypatch.setattr(Scenario, "act", fail)
    with pytest.raises(RuntimeError, match="the opening failed"):
        await started()
    assert len(closed) == 1
    assert files(temporary) == []


async def test_cancelled_start_leaves_no_thread_folder_or_database(
    temporary: Path, closed: list[Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, acts, act = threading.Event(), 0, Scenario.act

    async def count(self: Scenario, now: float) -> None:
        nonlocal acts
        acts += 1
        began.set()
        await act(self, now)

    monkeypatch.setattr(Scenario, "act", count)
    start = asyncio.create_task(started())
    assert await asyncio.to_thread(began.wait, 30)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert len(closed) == 1, "the thread of the opening has ended"
    assert files(temporary) == []
    counted = acts
    await asyncio.sleep(0.2)
    assert acts == counted


async def test_start_does_not_await_an_unreachable_host(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_all_but_one(self: SimulatedCluster) -> None:
        for host in self.hosts[1:]:
            host.start_agent()

    shorten_history(monkeypatch)
    monkeypatch.setattr(coordinator, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(SimulatedCluster, "start_agents", start_all_but_one)
    async with asyncio.timeout(60), mock_coordinator(None, lambda name, error: None) as running:
        nodes = (await running.nodes.list()).items
    assert sorted(node.name for node in nodes) == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
