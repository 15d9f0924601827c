"""Many jobs report at the same moment, in every way there is: nothing fails or is lost."""

import asyncio
import random

import pytest
from sqlalchemy import func, select
from support.cluster.simulated import SimulatedCluster
from support.storage.frames import frame, table

from trainhall.cluster.coordinator import Coordinator
from trainhall.db.models import Event, JobProgress
from trainhall.training.link.events import RankEvent

JOBS, ROUNDS = 6, 12
LINE = b"a line of output\n"


@pytest.mark.side_by_side
@pytest.mark.parametrize("coordinators", [1, 2])
async def test_metrics_logs_events_and_commands_side_by_side(
    cluster: SimulatedCluster, coordinators: int
) -> None:
    await cluster.add_node("host", slots=2 * JOBS)
    ids = [await cluster.submit(workers=2) for _ in range(JOBS)]
    for job_id in ids:
        await cluster.run_until(job_id, "running")
    asked = [cluster.coordinator]
    if coordinators == 2:
        cluster.start_coordinator()
        asked.append(cluster.coordinator)
    chance = random.Random(coordinators)

    async def metrics(job_id: str) -> None:
        for i in range(1, ROUNDS + 1):
            body = frame(i, table([i], loss=[1 / i]), table([i], rank=1, step_seconds=[0.1]))
            service = chance.choice(asked).ingest
            assert await service.metrics(job_id, 1, "0-aaaaaaaa", body) == i

    async def logs(job_id: str, stream: str) -> None:
        for i in range(ROUNDS):
            service = chance.choice(asked).ingest
            sent = await service.logs(job_id, 1, 0, stream, i * len(LINE), LINE)
            assert sent == (i + 1) * len(LINE)

    async def events(job_id: str, rank: int) -> None:
        for i in range(1, ROUNDS + 1):
            event = RankEvent(sequence=i, time=0.0, rank=rank, kind="note", data={"message": "x"})
            acked = await chance.choice(asked).rank_events.accept(
                job_id, 1, f"{rank}-bbbbbbbb", [event]
            )
            assert acked == i

    async def reads(job_id: str) -> None:
        for _ in range(ROUNDS):
            view = await chance.choice(asked).jobs.get(job_id)
            assert view.id == job_id

    async def cancel(job_id: str) -> None:
        for _ in range(3):
            await chance.choice(asked).jobs.cancel(job_id)

    async def reconcile(coordinator: Coordinator) -> None:
        for _ in range(ROUNDS):
            await coordinator.reconciler.settle()

    work = [reconcile(coordinator) for coordinator in asked]
    work += [
        batch
        for job_id in ids
        for batch in (
            metrics(job_id), logs(job_id, "stdout"), logs(job_id, "stderr"), events(job_id, 0),
            events(job_id, 1), reads(job_id), cancel(job_id),
        )
    ]  # fmt: skip
    chance.shuffle(work)
    await asyncio.gather(*work)

    async with cluster.db.session() as session:
        for progress in await session.scalars(select(JobProgress)):
            assert progress.step == ROUNDS
            assert progress.metrics["loss"] == 1 / ROUNDS
        notes = await session.scalar(
            select(func.count()).select_from(Event).where(Event.kind == "note")
        )
        assert notes == JOBS * 2 * ROUNDS
        twice = await session.execute(
            select(Event.job_id, Event.seq)
            .group_by(Event.job_id, Event.seq)
            .having(func.count() > 1)
        )
        assert twice.all() == []
