"""Every way in which an old token could change something, tried: by a host that was given up and
has not noticed, and by ranks of an earlier generation."""

from typing import Any

import pytest
from sqlalchemy import select, update
from support.cluster.outdated import STALE, Outdated
from support.cluster.simulated import SimulatedCluster, failure
from support.storage.frames import frame, table

from trainhall.cluster.errors import RevokedError
from trainhall.cluster.lifecycle.jobs import move_attempt, request_stop
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import AttemptState
from trainhall.db.models import Attempt, Job, LogChunk, LogStream, MetricFrame
from trainhall.training.fencing import FencingToken
from trainhall.training.link.events import RankEvent
from trainhall.training.link.status import Outcome

WHY = Reason.of(ReasonCode.SUBMITTED)


@pytest.fixture
async def replaced(cluster: SimulatedCluster) -> Outdated:
    """A job that moved to another host, while its first host still runs attempt 1."""
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit(workers=1)
    await cluster.run_until(job_id, "running")
    await cluster.save_checkpoint(job_id, 20)
    await cluster.disconnect(alpha)
    cluster.clock.advance(100)
    await cluster.settle()
    await cluster.add_node("beta")
    await cluster.run_until(job_id, "running")
    assert (await cluster.job(job_id)).attempt == 2
    return Outdated(cluster, job_id, alpha)


EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("started", {"total_steps": 7, "resumed_from": 3}),
    ("checkpoint", {"name": STALE, "step": 90, "size": 1}),
    ("completed", {"steps": 100, "metrics": {"loss": 0.0}}),
    ("paused", {"step": 90}),
    ("failure", {"type": "ValueError", "message": "late", "final": True}),
    ("network", {"message": "late"}),
    ("note", {"message": "late"}),
    ("gradients", {"step": 90}),
]


async def test_events(replaced: Outdated) -> None:
    before = await replaced.truth()
    coordinator, job_id = replaced.cluster.coordinator, replaced.job_id
    for number, (kind, data) in enumerate(EVENTS, 1):
        event = RankEvent.model_validate(
            {"sequence": number, "time": 0.0, "rank": 0, "kind": kind, "data": data}
        )
        acked = await coordinator.rank_events.accept(job_id, 1, "0-aaaaaaaa", [event])
        assert acked == number, "it is taken, so that the host can forget it"
        await replaced.cluster.settle()
        assert await replaced.truth() == before, kind
    stored = (await coordinator.jobs.events(job_id, limit=200)).items
    superseded = [e for e in stored if e.code == "rank_report_discarded"]
    assert all("the attempt was replaced" in e.reason for e in superseded)
    assert len(superseded) == len(EVENTS) - 1, "but for gradients, which are left out"


async def test_uploads(replaced: Outdated) -> None:
    before = await replaced.truth()
    await replaced.fail_to_upload()
    assert await replaced.truth() == before


async def test_fenced_metrics_and_logs_are_kept_as_void(replaced: Outdated) -> None:
    before = await replaced.truth()
    cluster, job_id = replaced.cluster, replaced.job_id
    body = frame(1, table([90], loss=[0.0]))
    assert await cluster.coordinator.ingest.metrics(job_id, 1, "0-bbbbbbbb", body) == 1
    assert await cluster.coordinator.ingest.logs(job_id, 1, 0, "stdout", 0, b"late\n") == 5
    assert await replaced.truth() == before
    async with cluster.db.session() as session:
        voids = await session.scalars(
            select(MetricFrame.superseded).where(MetricFrame.attempt == 1)
        )
        assert set(voids) == {True}
        kept = await session.scalars(select(LogChunk.superseded).where(LogChunk.attempt == 1))
        assert set(kept) == {True}
        stream = await session.get_one(LogStream, (job_id, 1, 0, "stdout"))
        assert stream.length == 5
        assert (await session.get_one(Attempt, (job_id, 1))).first_step is None


@pytest.mark.parametrize("outcome", [None, Outcome.COMPLETED])
async def test_reports(replaced: Outdated, outcome: Outcome | None) -> None:
    """Its node reports it again: it ends, and changes nothing else."""
    before = await replaced.truth()
    old = replaced.away.running(replaced.job_id)
    if outcome is not None:
        replaced.away.end(old, outcome, None)
    await replaced.cluster.connect(replaced.away)
    await replaced.cluster.heartbeat()
    await replaced.cluster.work(3)
    assert await replaced.truth() == before
    assert replaced.away.attempts == {}
    assert len(replaced.away.launched) == 1, "and nothing was launched there again"


async def test_transitions(replaced: Outdated) -> None:
    before = await replaced.truth()
    token, now = FencingToken(replaced.job_id, 1, 1), replaced.cluster.clock.now()
    async with replaced.cluster.db.transaction() as session:
        for start in (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING):
            end = AttemptState.COMPLETED
            assert not await move_attempt(session, token, start, end, reason=WHY, now=now)
        assert not await request_stop(session, token, "stop", reason=WHY, now=now)
    assert await replaced.truth() == before


async def test_an_earlier_generation_of_the_same_attempt(cluster: SimulatedCluster) -> None:
    """Its ranks regrouped; events of one that was left out are discarded."""
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    old = alpha.running(job_id)
    async with cluster.db.transaction() as session:
        await session.execute(update(Attempt).values(generation=2))
        await session.execute(update(Job).values(generation=2))
    replaced = Outdated(cluster, job_id, alpha)
    before = await replaced.truth()
    stale = RankEvent.model_validate(
        {"sequence": 1, "time": 0.0, "rank": 0, "kind": "checkpoint",
         "data": {"name": STALE, "step": 90, "size": 1}}
    )  # fmt: skip
    await cluster.coordinator.rank_events.accept(job_id, 1, "0-cccccccc", [stale])
    with pytest.raises(RevokedError, match="regrouped after generation 1 and resumed from"):
        await cluster.coordinator.checkpoints.uploads.commit(job_id, STALE)
    async with cluster.db.transaction() as session:
        token, now = FencingToken(job_id, 1, 1), cluster.clock.now()
        start, end = AttemptState.RUNNING, AttemptState.FAILED
        assert not await move_attempt(session, token, start, end, reason=WHY, now=now)
        assert not await request_stop(session, token, "stop", reason=WHY, now=now)
    alpha.end(old, Outcome.FAILED, failure())
    cluster.send_report(alpha)
    await cluster.settle()
    assert await replaced.truth() == before
