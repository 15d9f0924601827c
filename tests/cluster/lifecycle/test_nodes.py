"""Only the listed transitions of a node happen; a drain is kept until a user takes it back."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from sqlalchemy import Engine, event, select, text
from sqlalchemy.exc import OperationalError
from support.cluster.simulated import SimulatedCluster, failure, spec, wipe
from support.database import on_sqlite
from support.examples import share_of

from trainhall.cluster.agent.shim.failure_cause import RankExit, classify_failure
from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError
from trainhall.cluster.lifecycle.jobs import IllegalTransitionError
from trainhall.cluster.lifecycle.nodes import (
    DRAINS,
    KEPT_EVENTS,
    NODE_EDGES,
    UNREACHABLE_STATES,
    create_node,
    drain_node,
    move_node,
    state_when_reachable,
    undrain_node,
)
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.nodes import views
from trainhall.cluster.nodes.fault_policy import DEATHS
from trainhall.cluster.nodes.quarantine import quarantine_failing_nodes
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.ports import SystemIds
from trainhall.cluster.reconcile import apply
from trainhall.cluster.reconcile.apply import Applier
from trainhall.cluster.reconcile.decide import decide
from trainhall.cluster.reconcile.decisions import StartAttempt
from trainhall.cluster.service import ServiceContext
from trainhall.cluster.snapshot.load import load_facts
from trainhall.db.database import Database
from trainhall.db.models import Node, NodeEvent
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import Outcome

WHY = Reason.of(ReasonCode.SUBMITTED)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATES = st.sampled_from(NodeState)


def new_node(name: str) -> Node:
    return Node(id=name, name=name, labels={}, address="", host_use={}, removing=False)


def test_node_edge_table_is_complete() -> None:
    assert {end for _, end in NODE_EDGES} | {NodeState.PENDING} == set(NodeState)
    assert {start for start, _ in NODE_EDGES} == set(NodeState)
    assert all(start is not end for start, end in NODE_EDGES)
    assert all(end is not NodeState.PENDING for _, end in NODE_EDGES)


@given(STATES, st.booleans(), st.booleans(), st.booleans())
def test_reporting_node_takes_a_listed_edge(
    state: NodeState, drains: bool, holds: bool, agent_stops: bool
) -> None:
    end = state_when_reachable(state, drains=drains, holds=holds, agent_stops=agent_stops)
    assert end is state or (state, end) in NODE_EDGES
    assert end not in UNREACHABLE_STATES
    assert (end in DRAINS) == drains
    if end is NodeState.DRAINING:
        assert holds


async def test_only_listed_edges(database: Database) -> None:
    async with database.transaction() as session:
        for start, end in product(NodeState, NodeState):
            if (start, end) in NODE_EDGES:
                assert not await move_node(session, "nobody", start, end, reason=WHY, now=NOW)
            else:
                with pytest.raises(IllegalTransitionError):
                    await move_node(session, "nobody", start, end, reason=WHY, now=NOW)


class Life(RuleBasedStateMachine):
    """One node, whatever happens to it: its wish is kept, and its history says every state."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._database = database
        self._run = loop.run_until_complete
        self._now = NOW
        self._drains = False
        self._run(self._create())

    async def _create(self) -> None:
        await wipe(self._database)
        async with self._database.transaction() as session:
            await create_node(session, new_node("a"), now=NOW)

    @rule(agent_stops=st.booleans())
    def receive_report(self, agent_stops: bool) -> None:
        self._run(self._receive_report(agent_stops))

    @rule(lost=st.booleans())
    def be_silent(self, lost: bool) -> None:
        self._run(self._be_silent(lost))

    @rule(reason=st.sampled_from(["a new disk", "dust"]))
    def drain(self, reason: str) -> None:
        self._drains = True
        self._run(self._drain(reason))

    @rule(reachable=st.booleans())
    def undrain(self, reachable: bool) -> None:
        self._drains = False
        self._run(self._undrain(reachable))

    async def _receive_report(self, agent_stops: bool) -> None:
        async with self._database.transaction() as session:
            node = await session.get_one(Node, "a")
            start = NodeState(node.state)
            end = state_when_reachable(
                start, drains=self._drains, holds=False, agent_stops=agent_stops
            )
            if end is not start:
                assert await move_node(session, "a", start, end, reason=WHY, now=self._tick())
        await self._check()

    async def _be_silent(self, lost: bool) -> None:
        async with self._database.transaction() as session:
            start = NodeState((await session.get_one(Node, "a")).state)
            end = NodeState.LOST if lost else NodeState.SUSPECT
            if start is NodeState.READY or (lost and start not in UNREACHABLE_STATES):
                assert await move_node(session, "a", start, end, reason=WHY, now=self._tick())
        await self._check()

    async def _drain(self, reason: str) -> None:
        for _ in range(2):  # the second changes nothing
            async with self._database.transaction() as session:
                node = await session.get_one(Node, "a")
                await drain_node(session, node, reason=reason, now=self._tick())
        await self._check()

    async def _undrain(self, reachable: bool) -> None:
        for _ in range(2):
            async with self._database.transaction() as session:
                node = await session.get_one(Node, "a")
                await undrain_node(session, node, reachable=reachable, now=self._tick())
        await self._check()

    def _tick(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now

    async def _check(self) -> None:
        async with self._database.session() as session:
            node = await session.get_one(Node, "a")
            assert (node.drain_reason is not None) == self._drains
            if node.state not in UNREACHABLE_STATES:
                assert (node.state in DRAINS) == self._drains
            events = (await session.scalars(select(NodeEvent).order_by(NodeEvent.id))).all()
            assert events[-1].state == node.state
            assert [e.time for e in events if e.state == node.state][-1] >= node.state_at
            assert all(e.reason for e in events)


def test_node_keeps_drain_and_history(database_url: str) -> None:
    with asyncio.Runner() as runner:
        database = Database(database_url)
        runner.run(database.migrate())
        run_state_machine_as_test(
            lambda: Life(database, runner.get_loop()),  # type: ignore[arg-type]  # any factory will do
            settings=settings(
                max_examples=share_of(12), stateful_step_count=12, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
        runner.run(database.close())


async def test_a_node_event_has_its_reason_s_code(database: Database) -> None:
    async with database.transaction() as session:
        await create_node(session, new_node("a"), now=NOW)
        node = await session.get_one(Node, "a")
        await drain_node(session, node, reason="a new disk", now=NOW)
        await undrain_node(session, node, reachable=False, now=NOW)
        rows = await session.execute(select(NodeEvent.code, NodeEvent.reason))
        assert rows.all() == [
            ("registered", "registered, not yet joined"),
            ("drain_requested", "drain requested: a new disk"),
            ("undrained", "undrained by a user"),
        ]


async def test_node_history_is_bounded(database: Database) -> None:
    async with database.transaction() as session:
        await create_node(session, new_node("a"), now=NOW)
        await create_node(session, new_node("b"), now=NOW)
        node = await session.get_one(Node, "a")
        for number in range(KEPT_EVENTS + 5):
            await drain_node(session, node, reason=f"reason {number}", now=NOW)
        rows = await session.scalars(
            select(NodeEvent.reason).where(NodeEvent.node_id == "a").order_by(NodeEvent.id)
        )
        kept = rows.all()
        assert len(kept) == KEPT_EVENTS
        assert kept[-1].endswith(f"reason {KEPT_EVENTS + 4}")
        others = await session.scalars(select(NodeEvent).where(NodeEvent.node_id == "b"))
        assert len(others.all()) == 1


async def test_a_drained_node_s_job_saves_and_moves(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    nodes = cluster.coordinator.nodes
    drained = await nodes.drain(alpha.node_id, "a new disk")
    assert (drained.state, drained.reason) == ("draining", "a new disk: its jobs save and move")
    await cluster.settle()
    await cluster.save_checkpoint(job_id, 20)
    await cluster.finish(job_id, Outcome.PAUSED)
    after = await nodes.get(alpha.node_id)
    assert (after.state, after.reason) == ("drained", "a new disk; nothing runs on it")
    waiting = await cluster.job(job_id)
    assert waiting.state == "recovering"
    assert "is being drained: it saves and moves" in waiting.reason
    beta = await cluster.add_node("beta")
    job = await cluster.run_until(job_id, "running")
    assert job.attempt == 2
    assert beta.launched, "it resumes on another node"
    again = await nodes.drain(alpha.node_id)
    assert again.state_at == after.state_at, "draining it again changes nothing"
    assert again.drain_reason == "a new disk"
    await cluster.check()


@pytest.mark.side_by_side
async def test_placement_excludes_a_node_drained_meanwhile(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha")
    await cluster.coordinator.jobs.submit(spec())
    async with cluster.db.session() as session:
        facts = await load_facts(session, cluster.coordinator.heartbeats)
    (start,) = decide(cluster.clock.now(), facts, cluster.options)
    assert isinstance(start, StartAttempt)
    context = ServiceContext(cluster.db, cluster.clock, SystemIds(), cluster.options, Notifier())
    applier = Applier(context, cluster.coordinator.heartbeats)
    async with cluster.db.transaction() as session:
        node = await session.get(Node, alpha.node_id, with_for_update=True)
        assert node is not None
        await drain_node(session, node, reason="dust", now=NOW)
        starting = asyncio.create_task(applier.apply(start))
        if cluster.db.dialect == "postgresql":  # SQLite lets one writer in
            await _waits_for_a_lock(cluster.db, starting)
    assert not await starting
    await cluster.check()


async def _waits_for_a_lock(database: Database, task: "asyncio.Task[bool]") -> None:
    blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with asyncio.timeout(30):
        while not task.done():
            async with database.session() as session:
                if await session.scalar(blocked):
                    return


@on_sqlite
async def test_drained_node_stays_drained_after_loss(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha")
    nodes = cluster.coordinator.nodes
    await nodes.drain(alpha.node_id)
    await cluster.disconnect(alpha)
    cluster.clock.advance(100)
    await cluster.settle()
    assert (await nodes.get(alpha.node_id)).state == "lost"
    await cluster.connect(alpha)
    await cluster.settle()
    assert (await nodes.get(alpha.node_id)).state == "drained"
    job_id = await cluster.submit()
    await cluster.settle()
    assert (await cluster.job(job_id)).state == "queued"
    back = await nodes.undrain(alpha.node_id)
    assert (back.state, back.drain_reason) == ("ready", None)
    await cluster.run_until(job_id, "running")
    states = [event.state for event in await nodes.events(alpha.node_id)]
    assert states == ["pending", "ready", "drained", "lost", "drained", "ready"]


@on_sqlite
async def test_a_drain_survives_the_coordinator(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha")
    await cluster.coordinator.nodes.drain(alpha.node_id, "dust")
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    await cluster.connect(alpha)
    await cluster.settle()
    node = await cluster.coordinator.nodes.get(alpha.node_id)
    assert (node.state, node.drain_reason) == ("drained", "dust")


@on_sqlite
async def test_a_node_may_be_drained_before_it_joins(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    registered = await nodes.register("alpha")
    pending = await nodes.drain(registered.id, "not yet")
    assert (pending.state, pending.drain_reason) == ("pending", "not yet")
    assert pending.refused_commands == {}
    back = await nodes.undrain(registered.id)
    assert (back.drain_reason, list(back.refused_commands)) == (None, ["undrain"])
    assert (await nodes.undrain(registered.id)).state == "pending", "twice is harmless"


@on_sqlite
async def test_node_being_removed_cannot_be_undrained(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    nodes = cluster.coordinator.nodes
    removing = await nodes.remove(alpha.node_id)
    assert removing is not None
    assert removing.state == "draining"
    assert (await nodes.drain(alpha.node_id, "x")).drain_reason is None
    with pytest.raises(ConflictError, match="being removed"):
        await nodes.undrain(alpha.node_id)
    for change in (nodes.drain, nodes.undrain, nodes.events):
        with pytest.raises(NotFoundError):
            await change("nobody")


async def test_lost_node_is_removed_after_its_attempt_ended(
    cluster: SimulatedCluster,
) -> None:
    """Until then the attempt holds the devices of all its hosts."""
    alpha, beta = await cluster.add_node("alpha", slots=1), await cluster.add_node("beta", slots=1)
    job_id = await cluster.submit(workers=2, recovery={"max_restarts": 0})
    await cluster.run_until(job_id, "running")
    alpha.end(alpha.running(job_id), Outcome.FAILED, failure(3))
    cluster.send_report(alpha)
    await cluster.settle()
    assert beta.running(job_id).assignment.goal == "stop"
    assert await cluster.coordinator.nodes.remove(alpha.node_id) is not None
    await cluster.disconnect(alpha)
    for _ in range(50):
        await cluster.heartbeat(2)
    assert (await cluster.coordinator.nodes.get(alpha.node_id)).state == "lost"
    with pytest.raises(ConflictError, match="'alpha' is being removed: choose another name"):
        await cluster.coordinator.nodes.register("alpha")
    await cluster.check()
    await cluster.work(2)
    assert (await cluster.job(job_id)).state == "failed"
    with pytest.raises(NotFoundError):
        await cluster.coordinator.nodes.get(alpha.node_id)


async def test_labels_change_one_by_one(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    node = await nodes.register("alpha", {"rack": "b", "gpu": "a100"})
    changed = await nodes.change(node.id, labels={"rack": None, "zone": "x", "never": None})
    assert changed.labels == {"gpu": "a100", "zone": "x"}
    assert (await nodes.change(node.id, labels={"zone": "x"})).labels == changed.labels
    reasons = [event.reason for event in await nodes.events(node.id)]
    assert reasons[1:] == ["labels: gpu=a100, zone=x"], "no event without a change"
    for bad in ({"no good": "x"}, {"zone": "a\nb"}, {f"k{i}": "v" for i in range(65)}):
        with pytest.raises(InvalidValueError):
            await nodes.change(node.id, labels=bad)
    assert (await nodes.get(node.id)).labels == changed.labels


async def test_repeated_device_fault_quarantines_the_node(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha")
    nodes = cluster.coordinator.nodes
    job_id = await cluster.submit(recovery={"max_restarts": 9})

    async def fail() -> views.Node:
        await cluster.run_until(job_id, "running")
        fault = Failure(rank=0, message="Xid 79", cause=Cause.DEVICE_FAULT)
        await cluster.finish(job_id, Outcome.FAILED, fault)
        cluster.clock.advance(40)
        await cluster.heartbeat()
        return await nodes.get(alpha.node_id)

    assert (await fail()).state == "ready", "once is no proof"
    quarantined = await fail()
    assert (quarantined.state, quarantined.drain_reason is not None) == ("drained", True)
    assert quarantined.reason.startswith(
        "quarantined (unhealthy): a device failed 2 times within 24 hours"
    )
    await nodes.undrain(alpha.node_id)
    assert (await fail()).state == "ready", "what was before a user brought it back is forgiven"


@on_sqlite
async def test_quarantine_follows_a_failed_transaction(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 9})
    fault = Failure(rank=0, message="Xid 79", cause=Cause.DEVICE_FAULT)
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id, Outcome.FAILED, fault)
    await cluster.heartbeat(40)
    await cluster.run_until(job_id, "running")
    notified: list[str] = []
    away = [OperationalError("BEGIN", {}, Exception("away"))]

    async def quarantine(*given: Any) -> list[str]:
        if away:
            raise away.pop()
        return await quarantine_failing_nodes(*given)

    monkeypatch.setattr(apply, "quarantine_failing_nodes", quarantine)
    monkeypatch.setattr(cluster.coordinator.reconciler._notifier, "notify_viewers", notified.append)
    with pytest.raises(OperationalError):
        await cluster.finish(job_id, Outcome.FAILED, fault)
    assert notified[-1] == job_id, "viewers learn of what was committed"
    await cluster.settle()
    assert (await cluster.coordinator.nodes.get(alpha.node_id)).state == "drained"


@on_sqlite
@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("end", ["pause", "cancel"])
async def test_quarantine_counts_failed_starts_since_training(
    cluster: SimulatedCluster, end: str, steps: bool
) -> None:
    alpha = await cluster.add_node("alpha")
    jobs = cluster.coordinator.jobs

    async def fail_to_start() -> None:
        job_id = await cluster.submit(recovery={"max_restarts": 0})
        await cluster.run_until(job_id, "running")
        fault = Failure(message="no processes", cause=Cause.NOT_STARTED)
        await cluster.finish(job_id, Outcome.FAILED, fault)
        cluster.clock.advance(40)
        await cluster.heartbeat()

    await fail_to_start()
    await fail_to_start()
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    if steps:
        await cluster.report_event(job_id, "started", {"resumed_from": None})
    await getattr(jobs, end)(job_id)
    await cluster.run_until(job_id, "paused" if end == "pause" else "cancelled")
    cluster.clock.advance(40)
    await cluster.heartbeat()
    await fail_to_start()
    node = await cluster.coordinator.nodes.get(alpha.node_id)
    assert node.state == ("ready" if steps else "drained")


@on_sqlite
@pytest.mark.parametrize(
    ("kind", "state"),
    [("NoGoodCheckpointError", "ready"), ("UnreadableCheckpointError", "drained")],
)
async def test_damaged_checkpoints_do_not_quarantine_a_node(
    cluster: SimulatedCluster, kind: str, state: str
) -> None:
    """Unless it is their node that does not read them."""
    alpha = await cluster.add_node("alpha")
    message = "no checkpoint can be loaded: step-00000010-a1-g1 was not used"
    cause = classify_failure(RankExit(words=message, exception=kind, exit_code=1)).cause
    for _ in range(DEATHS):
        job_id = await cluster.submit(recovery={"max_restarts": 0})
        await cluster.run_until(job_id, "running")
        fault = Failure(rank=0, exit_code=1, message=message, cause=cause)
        await cluster.finish(job_id, Outcome.FAILED, fault)
        cluster.clock.advance(40)
        await cluster.heartbeat()
    assert (await cluster.coordinator.nodes.get(alpha.node_id)).state == state


@on_sqlite
async def test_quarantine_skips_failures_that_are_no_fault(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha")
    seen: list[str] = []

    def note(connection, cursor, statement, parameters, context, executemany):  # type: ignore[no-untyped-def]
        if "finished_at >" in statement:
            seen.append(statement)

    async def end_with(cause: Cause) -> int:
        seen.clear()
        job_id = await cluster.submit(recovery={"max_restarts": 0})
        await cluster.run_until(job_id, "running")
        await cluster.finish(
            job_id, Outcome.FAILED, Failure(rank=0, message="it fell", cause=cause)
        )
        return len(seen)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        for cause in (Cause.USER_ERROR, Cause.OUT_OF_MEMORY, Cause.NETWORK, Cause.UNKNOWN):
            assert await end_with(cause) == 0, cause
        assert await end_with(Cause.CRASH) == 1
        assert "checkpoint_plan" not in seen[0], "only what is needed of an attempt is read"
    finally:
        event.remove(Engine, "before_cursor_execute", note)
