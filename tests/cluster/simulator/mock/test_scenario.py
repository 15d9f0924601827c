"""What mock mode shows: something of everything at the start, and a modest rate for ever."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.agent import Agent
from trainhall.cluster.simulator.mock import jobs
from trainhall.cluster.simulator.mock.coordinator import Mock
from trainhall.cluster.simulator.mock.scenario import (
    ARRIVAL_SECONDS,
    IDLE_SECONDS,
    MOST_WAITING,
    OPENING_SECONDS,
    Scenario,
)
from trainhall.db.database import Database
from trainhall.monitoring.metrics import read_metrics

PATIENCE = 300.0
"""Seconds, for a busy machine."""


@pytest.fixture
async def mock(tmp_path: Path) -> AsyncIterator[Mock]:
    """What mock mode starts; nothing of it may have failed by the end."""
    db = Database("sqlite://")
    await db.migrate()
    failed: list[str] = []
    made = Mock(db, tmp_path, on_fatal=lambda name, error: failed.append(f"{name}: {error!r}"))
    await made.start()
    yield made
    await made.stop()
    await made.coordinator.hub.close()
    await db.close()
    assert failed == []


async def test_scenario_shows_every_state_and_advances(mock: Mock) -> None:
    page = await mock.coordinator.jobs.list(limit=100)
    states = {job.state for job in page.items}
    assert {
        "completed",
        "failed",
        "cancelled",
        "paused",
        "queued",
        "running",
    } <= states
    by_name = {job.name: job for job in page.items}
    killed = by_name["sweep lr=1e-3"]
    # On a busy machine the opening ends later.
    assert killed.state == "recovering" or killed.generation > 1
    assert "the whole cluster has 32 GPUs" in by_name["pretraining 64 GPUs"].reason
    assert "CUDA out of memory" in by_name["context 32k"].reason
    assert by_name["speech encoder"].attempt > 1
    job = by_name["ranker nightly"]
    assert job.started_at is not None
    assert (mock.clock.now() - job.started_at).total_seconds() > OPENING_SECONDS / 4
    curves = await read_metrics(mock.coordinator.db, job.id, ["loss"])
    assert len(curves[0].run) > 100
    (sweep,) = (await mock.coordinator.experiments.list()).items
    assert (sweep.state, sum(sweep.counts.values())) == ("completed", 4)
    nodes = (await mock.coordinator.nodes.list()).items
    assert [(n.name, n.state, len(n.devices)) for n in nodes] == [
        (f"gpu-0{i}", "ready", 8) for i in (1, 2, 3, 4)
    ]
    assert any((d.utilization or 0) > 50 for n in nodes for d in n.devices)
    spec = jobs.digits("mine", 2, steps=60, rate=1e-3).model_copy(update={"priority": 0})
    mine, _ = await mock.coordinator.jobs.submit(spec)
    await ran(mock, mine.id)
    before = mock.clock.now()
    known = (await mock.coordinator.jobs.list(limit=100)).items
    await mock.forget(kept=2)
    left = (await mock.coordinator.jobs.list(limit=100)).items
    ended = [job for job in left if job.finished_at is not None and job.finished_at < before]
    assert len([job for job in ended if job.experiment is None]) == 2
    assert len([job for job in ended if job.experiment is not None]) == 4, "a sweep stays whole"
    assert mine.id in {job.id for job in left}, "the newest stay"
    kept = {job.id for job in left}
    assert set(mock.cluster.storage.committed) <= kept
    assert {token.job_id for token in mock.cluster._groups} <= kept
    assert {job for host in mock.cluster.hosts for job in host.disk.launched} <= kept
    await ended_everywhere(mock, mine.id)
    await mock.coordinator.deleted_jobs.sweep()
    stored = {folder.name for folder in (mock.folder / "checkpoints").iterdir()}
    assert not stored & ({job.id for job in known} - kept)


async def ended_everywhere(mock: Mock, job_id: str) -> None:
    """Until no agent remembers the attempts of a job that ended."""
    agents = [host.agent for host in mock.cluster.hosts if isinstance(host.agent, Agent)]
    assert job_id in {token.job_id for agent in agents for token in agent._seen_running}
    async with asyncio.timeout(PATIENCE):
        for agent in agents:
            while any(token.job_id == job_id for token in agent._seen_running):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def ran(mock: Mock, job_id: str) -> None:
    """Until the job has taken steps: it does not wait behind those of the simulation."""
    async with asyncio.timeout(PATIENCE):
        for _ in itertools.count():
            job = await mock.coordinator.jobs.get(job_id)
            if job.step > 0:
                return
            await asyncio.sleep(0.1)


class IdleCluster:
    """A cluster in which no job runs, and jobs of users wait."""

    def __init__(self) -> None:
        self.time = 1e9
        self.clock = SimpleNamespace(now=lambda: datetime.fromtimestamp(self.time, UTC))
        self.hosts: list[Any] = []
        self.submitted: list[float] = []
        self.coordinator = SimpleNamespace(queue=self, nodes=self, jobs=self, experiments=self)

    async def list(self, **_: object) -> Any:
        """Waiting jobs, and running jobs and nodes that are none of its own."""
        other = SimpleNamespace(id="other", job_id="other", state="other")
        return SimpleNamespace(items=[other] * MOST_WAITING)

    async def summary(self) -> Any:
        return SimpleNamespace(devices=32, devices_busy=0)

    async def submit(self, _: object) -> Any:
        self.submitted.append(self.time)
        return SimpleNamespace(id=f"job-{self.time}"), True

    async def get(self, _: str) -> Any:
        return SimpleNamespace(state="completed")

    async def create(self, _: object) -> None: ...

    async def cancel(self, _: str) -> None: ...

    async def pause(self, _: str) -> None: ...

    def add_host(self, _: str) -> None: ...


async def test_idle_cluster_gets_a_job_soon() -> None:
    cluster: Any = IdleCluster()
    scenario = Scenario(cluster, {}, seed=3)
    present = cluster.time + OPENING_SECONDS + 60
    while cluster.time < present + 3600:
        cluster.time = max(cluster.time, scenario.due)
        await scenario.act(cluster.time)
    times = [present, *(time for time in cluster.submitted if time > present)]
    assert max(after - before for before, after in itertools.pairwise(times)) <= IDLE_SECONDS
    assert len(times) > 3600 / IDLE_SECONDS


def test_a_day_of_arrivals_stays_small() -> None:
    """What a day's jobs would store, counted from their specs."""
    random = chance.stream(1, "a day")
    points = gpu_seconds = 0.0
    for number in range(round(86_400 / ARRIVAL_SECONDS)):
        spec = jobs.arriving(random, number).spec
        workers, steps = spec.resources.workers, spec.training.steps or 60
        points += steps * (12 + 7 * workers)
        if spec.task is not None:
            seconds = spec.task.params.get("step_seconds", 0.03)
            gpu_seconds += workers * steps * seconds
    assert gpu_seconds < 32 * 86_400, "the cluster keeps up"
    assert points < 6e6, "each takes some 30 bytes"


def test_every_job_that_arrives_is_valid_and_named() -> None:
    random = chance.stream(2, "names")
    orders = [jobs.arriving(random, number) for number in range(300)]
    assert len({order.spec.name for order in orders}) > 30
    assert any(order.fates for order in orders)
    assert any(order.spec.script for order in orders)
