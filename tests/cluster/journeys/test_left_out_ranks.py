"""Ranks that a regrouping left out and that do not know it: every way in which they reach the
coordinator, once the others have gone on without them.

Their host's agent was dead or cut off. It reports again while the attempt still runs, after the
attempt was replaced, after the job has ended, or as another agent on a host whose ranks live.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select
from support.cluster.outdated import STALE, Outdated
from support.cluster.simulated import SimulatedCluster, SimulatedNode, failure
from support.database import on_sqlite
from support.storage.frames import frame, table

from trainhall.db.models import LogChunk, MetricFrame
from trainhall.monitoring.lineage import Origin
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.fencing import FencingToken
from trainhall.training.link.events import RankEvent
from trainhall.training.link.gradient_record import GradientRecord
from trainhall.training.link.stall import RankStall, Stall
from trainhall.training.link.status import Outcome

LEFT_AT = 20
"""The last step of the first generation; the second one takes the next."""


def gradients(step: int, norm: float = 9.0) -> dict[str, Any]:
    return GradientRecord(
        step=step, request=0, names=["weight"], norms=[norm], largest=[norm]
    ).as_json()


@dataclass
class LeftOut(Outdated):
    stays: SimulatedNode
    sent: int = 0

    @property
    def origin(self) -> Origin:
        return Origin(1, self.away.node_id)

    async def report_event(
        self, kind: str, data: dict[str, Any], writer: str = "0-aaaaaaaa"
    ) -> None:
        """A rank that was left out does."""
        self.sent += 1
        event = RankEvent.model_validate(
            {"sequence": self.sent, "time": 5.0, "rank": 0, "kind": kind, "data": data}
        )
        acked = await self.cluster.coordinator.rank_events.accept(
            self.job_id, 1, writer, [event], self.origin
        )
        assert acked == self.sent, "it is taken, so that the host can forget it"
        await self.cluster.settle()

    async def measure(self, sequence: int, *steps: int) -> None:
        body = frame(sequence, table(steps, loss=[-1.0] * len(steps)))
        ingest = self.cluster.coordinator.ingest
        assert await ingest.metrics(self.job_id, 1, "0-aaaaaaaa", body, self.origin) == sequence
        await self.cluster.settle()

    async def reasons(self) -> list[str]:
        events = await self.cluster.coordinator.jobs.events(self.job_id, limit=500)
        return [event.reason for event in events.items]


async def start(cluster: SimulatedCluster) -> LeftOut:
    """A job on two hosts; the one of its rank 0 is lost, and the other continues without it."""
    cluster.later_step = LEFT_AT + 1
    nodes = [await cluster.add_node("alpha", slots=1), await cluster.add_node("beta", slots=1)]
    job_id = await cluster.submit(resources={"min_workers": 1, "max_workers": 2})
    await cluster.run_until(job_id, "running")
    (away,) = (node for node in nodes if node.running(job_id).assignment.launch.ranks[0].rank == 0)
    (stays,) = (node for node in nodes if node is not away)
    found = LeftOut(cluster, job_id, away, stays)
    started = {"generation": 1, "resumed_from": None, "total_steps": 100, "samples": 9}
    await found.report_event("started", started, "0-00000001")
    found.sent = 0
    steps = range(1, LEFT_AT - 1)  # the last two had yet to be shipped
    await cluster.coordinator.ingest.metrics(
        job_id, 1, "0-aaaaaaaa", frame(1, table(steps, loss=[1.0] * len(steps))), found.origin
    )
    await cluster.save_checkpoint(job_id, 10)
    await cluster.disconnect(away)
    return found


async def leave_undeliverable(found: LeftOut) -> None:
    for _ in range(20):
        await found.cluster.heartbeat(5)
    job = await found.cluster.job(found.job_id)
    assert (job.attempt, job.generation, job.world_size) == (1, 2, 1)


async def continue_training(found: LeftOut) -> None:
    """The others take the next steps, and save."""
    job = await found.cluster.job(found.job_id)
    steps = range(LEFT_AT + 1, LEFT_AT + 6)
    await found.cluster.coordinator.ingest.metrics(
        found.job_id, job.attempt, "1-bbbbbbbb",
        frame(1, table(steps, loss=[2.0] * len(steps))), Origin(1, found.stays.node_id),
    )  # fmt: skip
    await found.cluster.report_event(found.job_id, "gradients", gradients(LEFT_AT + 2, 0.5))
    await found.cluster.save_checkpoint(found.job_id, LEFT_AT + 5)


async def running(found: LeftOut) -> None:
    """Its attempt runs without it."""


async def replaced(found: LeftOut) -> None:
    """Its attempt, which was never revoked, has failed, and the next one runs."""
    cluster = found.cluster
    found.stays.end(found.stays.running(found.job_id), Outcome.FAILED, failure())
    await cluster.work(2)
    for _ in range(15):
        await cluster.heartbeat(2)
    await cluster.run_until(found.job_id, "running")
    job = await cluster.job(found.job_id)
    assert (job.attempt, job.generation) == (2, 1)
    resumed = {"generation": 1, "resumed_from": LEFT_AT + 5, "total_steps": 100}
    await cluster.report_event(found.job_id, "started", resumed)
    body = frame(1, table([LEFT_AT + 6], loss=[3.0]))
    origin = Origin(1, found.stays.node_id)
    await cluster.coordinator.ingest.metrics(found.job_id, 2, "0-cccccccc", body, origin)


async def final(found: LeftOut) -> None:
    """The job is over."""
    payload = {"steps": 100, "metrics": {"loss": 0.5}}
    await found.cluster.report_event(found.job_id, "completed", payload)
    found.stays.end(found.stays.running(found.job_id), Outcome.COMPLETED)
    await found.cluster.work(2)
    assert (await found.cluster.job(found.job_id)).state == "completed"


async def restarted(found: LeftOut) -> None:
    """Another agent has adopted the ranks there, and has yet to apply its desired state."""
    found.away.desire = lambda assignments: None  # type: ignore[method-assign]
    await found.cluster.connect(found.away)
    await found.cluster.settle()
    assert found.away.running(found.job_id).assignment.launch.generation == 1


@pytest.fixture(params=[running, replaced, final, restarted], ids=lambda each: each.__name__)
async def left_out(
    request: pytest.FixtureRequest, cluster: SimulatedCluster
) -> AsyncIterator[LeftOut]:
    found = await start(cluster)
    await leave_undeliverable(found)
    await cluster.report_event(found.job_id, "note", {"message": "they have regrouped"})
    await continue_training(found)
    stage: Callable[[LeftOut], Any] = request.param
    await stage(found)
    yield found
    await cluster.check()


GONE = [{"name": "step-00000010-a1-g1", "reason": "gone", "text": "it is not there"}]
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("started", {"generation": 1, "total_steps": 7, "resumed_from": 3, "passed_over": GONE}),
    ("stepped", {"generation": 1, "step": 25, "loaded": 4.0}),
    ("completed", {"steps": 90, "metrics": {"loss": -1.0}, "chain": "ff", "measured": None}),
    ("paused", {"step": 90, "measured": None}),
    ("failure", {"type": "ValueError", "message": "late", "final": True}),
    ("network", {"message": "late"}),
    ("note", {"message": "late"}),
]


async def send_events(left_out: LeftOut) -> None:
    """They are notes that say so."""
    before = await left_out.truth()
    for kind, data in EVENTS:
        await left_out.report_event(kind, data)
        assert await left_out.truth() == before, kind
        *_, reason = await left_out.reasons()
        assert reason == f"discarded, the attempt continued without these ranks: {kind}"


async def save_checkpoints(left_out: LeftOut) -> None:
    """They are refused."""
    before = await left_out.truth()
    await left_out.report_event("checkpoint", {"name": STALE, "step": 90, "size": 1, "metrics": {}})
    assert await left_out.truth() == before
    *_, reason = await left_out.reasons()
    assert reason.startswith("a checkpoint was refused")
    # In another's name, as by an agent that finds an unreported checkpoint.
    await left_out.report_event(
        "checkpoint", {"name": STALE, "step": 90, "size": 1}, "recovered-0a"
    )
    assert await left_out.truth() == before


async def upload(left_out: LeftOut) -> None:
    """It is refused."""
    before = await left_out.truth()
    await left_out.fail_to_upload()
    assert await left_out.truth() == before


async def send_metrics(left_out: LeftOut) -> None:
    """They count until the others continue. One frame has steps of before and of after."""
    before = await left_out.truth()
    first = LEFT_AT - 1
    await left_out.measure(2, first, first + 1, first + 2, first + 3)
    await left_out.measure(3, 90)
    after = await left_out.truth()
    assert after.pop("curve") == before.pop("curve") | {first: -1.0, first + 1: -1.0}
    assert after == before
    async with left_out.cluster.db.session() as session:
        voids = await session.scalars(select(MetricFrame.superseded).order_by(MetricFrame.seq))
        assert voids.all()[-3:] == [False, True, True]


async def send_gradients(left_out: LeftOut) -> None:
    """They count until the others continue."""
    before = await left_out.truth()
    for step in (LEFT_AT + 2, 90):
        await left_out.report_event("gradients", gradients(step))
        assert await left_out.truth() == before
    await left_out.report_event("gradients", gradients(LEFT_AT))
    assert (await left_out.truth())["gradients"] == [(1, LEFT_AT, [9.0]), *before["gradients"]]


async def send_logs(left_out: LeftOut) -> None:
    """They are kept as void."""
    before = await left_out.truth()
    ingest = left_out.cluster.coordinator.ingest
    for origin, text in (
        (Origin(1, left_out.stays.node_id), b"right\n"),
        (left_out.origin, b"right\nlate\n"),
    ):
        await ingest.logs(left_out.job_id, 1, 0, "stdout", 0, text, origin)
    assert await left_out.truth() == before
    async with left_out.cluster.db.session() as session:
        voids = await session.scalars(select(LogChunk.superseded).order_by(LogChunk.seq))
        assert voids.all() == [False, True]


async def report(left_out: LeftOut, outcome: Outcome | None) -> None:
    """The host says what it has: that they run, or stand still, or how they ended."""
    before = await left_out.truth()
    cluster, away = left_out.cluster, left_out.away
    attempt = away.running(left_out.job_id)
    rank = RankStall(rank=0, step=90, parts=1, activity="in the forward pass", idle=99.0)
    attempt.stall = Stall(limit=30, behind=None, ranks=[rank])
    attempt.fall(0)
    if outcome is not None:
        away.end(attempt, outcome, failure() if outcome is Outcome.FAILED else None)
    if away.channel is None:
        await cluster.connect(away)
    cluster.send_report(away)
    await cluster.settle()
    after = await left_out.truth()
    if after["job"][2] == before["job"][2]:  # else it has grown onto the device that is free
        assert after == before
    assert len(away.launched) == 1, "nothing was launched there again"


async def test_left_out_ranks_change_nothing(left_out: LeftOut) -> None:
    """One run for all: each compares with what was so before it."""
    for send in (send_events, save_checkpoints, upload, send_metrics, send_gradients, send_logs):
        await send(left_out)
    await report(left_out, Outcome.FAILED)


@on_sqlite
@pytest.mark.parametrize("outcome", [None, *Outcome])
async def test_reports(left_out: LeftOut, outcome: Outcome | None) -> None:
    await report(left_out, outcome)


async def test_left_out_reports_count_before_next_generation(
    cluster: SimulatedCluster,
) -> None:
    """All had taken the last step, and rank 0's host was drained just then. Or else those that are
    left begin at a checkpoint: then it is taken back."""
    found = await start(cluster)
    cluster.stepped.add(FencingToken(found.job_id, 1, 2))  # they have yet to
    await leave_undeliverable(found)
    await found.report_event("completed", {"steps": 100, "metrics": {"loss": 0.5}})
    assert (await cluster.job(found.job_id)).step == 100
    payload = {"generation": 2, "total_steps": 100, "resumed_from": 10}
    await cluster.report_event(found.job_id, "started", payload)
    before = await found.truth()
    assert before["job"][3] == 10
    await found.report_event("completed", {"steps": 100, "metrics": {"loss": 0.5}})
    await found.measure(2, 9, 11, 100)
    after = await found.truth()
    assert after.pop("curve") == before.pop("curve") | {9: -1.0}
    assert after == before


async def test_process_restarted_in_later_generation_counts(
    cluster: SimulatedCluster,
) -> None:
    """It had joined in the second generation, in which no rank had the state."""
    node = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(resources={"workers": 2})
    await cluster.run_until(job_id, "running")
    await cluster.report_event(
        job_id, "started", {"generation": 1, "resumed_from": None, "total_steps": 9}
    )
    cluster.later_step = 1
    for _ in range(2):
        node.running(job_id).fall(1)
        await cluster.heartbeat()
    assert (await cluster.job(job_id)).generation == 3
    payload = {"generation": 3, "since": 2, "resumed_from": 4, "total_steps": 9}
    events = [RankEvent.model_validate(
        {"sequence": 1, "time": 5.0, "rank": 0, "kind": "started", "data": payload}
    )]  # fmt: skip
    origin = Origin(2, node.node_id)
    await cluster.coordinator.rank_events.accept(job_id, 1, "0-dddddddd", events, origin)
    body = frame(1, table([5, 6], loss=[5.0, 6.0]))
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-dddddddd", body, origin)
    assert (await cluster.job(job_id)).step == 6
    late = frame(1, table([4, 5, 6], loss=[-4.0, -5.0, -6.0]))
    old = Origin(1, node.node_id)
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-eeeeeeee", late, old)
    (loss,) = await read_metrics(cluster.db, job_id, names=["loss"])
    assert loss.run.steps.tolist() == [4, 5, 6]
    assert loss.run.last.tolist() == [-4.0, 5.0, 6.0]
