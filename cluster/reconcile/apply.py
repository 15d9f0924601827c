"""Applying decisions: one short transaction each, guarded by what it was decided from.

A guard that fails raises `ConflictError`, which rolls the transaction back: the next pass decides
again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import checkpoint_plan
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.jobs import auto_plans
from trainhall.cluster.lifecycle.generations import holds, regroups_in_place
from trainhall.cluster.lifecycle.host_report import dump_failure
from trainhall.cluster.lifecycle.jobs import (
    columns_of_reason,
    create_attempt,
    lock_job,
    move_attempt,
    move_job,
    request_stop,
)
from trainhall.cluster.lifecycle.nodes import (
    UNREACHABLE_STATES,
    hold_ready,
    holds_devices,
    move_node,
)
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, event_data
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.nodes.fault_policy import can_quarantine
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.nodes.quarantine import quarantine_failing_nodes
from trainhall.cluster.nodes.service import delete_node
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import Clock
from trainhall.cluster.reconcile.decisions import (
    Decision,
    EndAttempt,
    Explain,
    KeepPlan,
    MarkRunning,
    MoveNode,
    Regroup,
    Release,
    RemoveNode,
    StartAttempt,
    StopAttempt,
)
from trainhall.cluster.reconcile.regroup import regroup
from trainhall.cluster.scheduling.placement import allocation_of
from trainhall.db.database import Database
from trainhall.db.documents import GenerationRecord
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Grant, Job, Node


class Applier:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        options: ClusterOptions,
        heartbeats: HeartbeatMonitor,
        notifier: Notifier,
    ) -> None:
        self._db = db
        self._clock = clock
        self._options = options
        self._heartbeats = heartbeats
        self._notifier = notifier

    async def explain(self, explanations: Sequence[Explain]) -> None:
        """Store why jobs wait: many at once, since a change at the queue's head concerns all."""
        table = Job.__table__
        statement = (
            update(Job)
            .where(table.c.id == bindparam("at_id"), table.c.state == bindparam("at_state"))
            .values(reason=bindparam("why"), reason_code=bindparam("why_code"))
        )
        values = [
            {
                "at_id": e.job_id,
                "at_state": e.state.value,
                "why": e.reason.text,
                "why_code": e.reason.code.value,
            }
            for e in explanations
        ]
        async with self._db.transaction() as session:
            connection = await session.connection()
            await connection.execute(statement, values)

    async def apply(self, decision: Decision) -> bool:
        """False when somebody else was first; then nothing was changed."""
        touched = _Touched()
        try:
            async with self._db.transaction() as session:
                match decision:
                    case MoveNode():
                        await self._move_node(session, decision)
                        touched.nodes.add(decision.node_id)
                    case RemoveNode():
                        await self._remove_node(session, decision)
                        touched.removed.add(decision.node_id)
                    case Release():
                        await self._release(session, decision)
                        # Of a device that is gone, the node's next report removes the row.
                        touched.nodes.add(decision.node_id)
                    case MarkRunning():
                        await self._mark_running(session, decision)
                        touched.jobs.add(decision.token.job_id)
                    case KeepPlan():
                        attempt = await self._keep_plan(session, decision)
                        touched.attempt(attempt)
                    case StopAttempt():
                        attempt = await self._stop(session, decision)
                        touched.attempt(attempt)
                        touched.nodes |= await _holding(session, attempt)
                    case Regroup():
                        attempt, left = await self._regroup(session, decision)
                        touched.attempt(attempt)
                        touched.nodes |= left
                    case EndAttempt():
                        attempt = await self._end(session, decision)
                        touched.attempt(attempt)
                        touched.nodes |= await _holding(session, attempt)
                    case StartAttempt():
                        attempt = await self._start(session, decision)
                        touched.attempt(attempt)
        except (ConflictError, IntegrityError):
            # An integrity error here is the grant's key at work: the device was taken meanwhile,
            # or its node went away.
            return False
        if _can_quarantine(decision):
            # On its own: who reports locks a node before its attempts.
            async with self._db.transaction() as session:
                await quarantine_failing_nodes(session, touched.nodes, self._clock.now())
        for job_id in touched.jobs:
            self._notifier.notify_viewers(job_id)
        for node_id in touched.nodes | touched.removed:
            self._notifier.notify_node(node_id)
        for node_id in touched.removed:
            self._heartbeats.forget(node_id)
        return True

    async def _move_node(self, session: AsyncSession, decision: MoveNode) -> None:
        if self._heartbeats.seconds_since(decision.node_id) < decision.after_seconds:
            raise ConflictError  # it was heard while this was decided
        if decision.end is NodeState.DRAINED:
            await session.get(Node, decision.node_id, with_for_update=True)
            if await holds_devices(session, decision.node_id):
                raise ConflictError
        _check(
            await move_node(
                session, decision.node_id, decision.start, decision.end,
                reason=decision.reason, now=self._clock.now(),
            )
        )  # fmt: skip

    async def _remove_node(self, session: AsyncSession, decision: RemoveNode) -> None:
        node = await session.get(Node, decision.node_id, with_for_update=True)
        if node is None or not node.removing:
            raise ConflictError
        if node.state not in UNREACHABLE_STATES and await holds_devices(session, node.id):
            raise ConflictError
        await delete_node(session, node, now=self._clock.now())

    async def _release(self, session: AsyncSession, decision: Release) -> None:
        given_up = decision.device_indices
        if given_up:
            # It may have been taken back by a later generation.
            attempt = await session.get(
                Attempt, (decision.job_id, decision.attempt), with_for_update=True
            )
            if attempt is None or holds(attempt.allocation, decision.node_id, given_up):
                raise ConflictError
        await session.execute(
            delete(Grant).where(
                Grant.node_id == decision.node_id,
                Grant.job_id == decision.job_id,
                Grant.attempt == decision.attempt,
                *([Grant.device_index.in_(given_up)] if given_up else []),
            )
        )

    async def _mark_running(self, session: AsyncSession, decision: MarkRunning) -> None:
        now = self._clock.now()
        await lock_job(session, decision.token.job_id)
        start, end = AttemptState.STARTING, AttemptState.RUNNING
        _check(
            await move_attempt(session, decision.token, start, end, reason=decision.reason, now=now)
        )
        if decision.job_state is JobState.STARTING:
            await self._move_job(session, decision, JobState.STARTING, JobState.RUNNING, now)

    async def _keep_plan(self, session: AsyncSession, decision: KeepPlan) -> Attempt:
        token = decision.token
        await lock_job(session, token.job_id)
        answered = await session.execute(
            update(Attempt)
            .where(
                Attempt.job_id == token.job_id,
                Attempt.number == token.attempt,
                Attempt.generation == token.generation,
                Attempt.planning.is_(True),
                Attempt.revoked.is_(False),
                Attempt.state == AttemptState.STARTING.value,
            )
            .values(planning=False)
        )
        assert isinstance(answered, CursorResult)
        _check(answered.rowcount == 1)
        attempt = await _attempt(session, token.job_id, token.attempt)
        job = await session.get(Job, token.job_id)
        assert job is not None
        auto_plans.keep(decision.plan, job, attempt)
        if job.state == JobState.STARTING:
            job.reason, job.reason_code = decision.reason.text, decision.reason.code.value
        await session.flush()
        await record_event(
            session,
            token.job_id,
            time=self._clock.now(),
            kind="plan",
            code=decision.reason.code,
            reason=decision.reason.text,
            attempt=token.attempt,
            data=job.plan,
        )
        return attempt

    async def _stop(self, session: AsyncSession, decision: StopAttempt) -> Attempt:
        now = self._clock.now()
        token = decision.token
        await lock_job(session, token.job_id)
        goal, failure = decision.goal, dump_failure(decision.failure)
        _check(
            await request_stop(
                session, decision.token, goal, reason=decision.reason, now=now, failure=failure
            )
        )
        await record_event(
            session,
            token.job_id,
            time=now,
            kind="attempt",
            code=decision.reason.code,
            reason=decision.reason.text,
            data=event_data(decision.reason),
            attempt=token.attempt,
        )
        return await _attempt(session, token.job_id, token.attempt)

    async def _regroup(self, session: AsyncSession, decision: Regroup) -> tuple[Attempt, set[str]]:
        now, limit = self._clock.now(), self._options.resume_candidates
        return await regroup(session, decision, now, limit)

    async def _end(self, session: AsyncSession, decision: EndAttempt) -> Attempt:
        now = self._clock.now()
        token = decision.token
        await lock_job(session, token.job_id)
        await self._check_lost(session, decision)
        failure = dump_failure(decision.failure)
        _check(
            await move_attempt(
                session,
                decision.token,
                decision.attempt_start,
                decision.attempt_end,
                reason=decision.attempt_reason,
                now=now,
                changes={"failure": failure} if failure else None,
            )
        )
        ended = f"attempt {token.attempt} {decision.attempt_end.value}"
        why = decision.attempt_reason.text
        await record_event(
            session,
            token.job_id,
            time=now,
            kind="attempt",
            code=decision.attempt_reason.code,
            reason=ended if why == decision.attempt_end.value else f"{ended}: {why}",
            attempt=token.attempt,
            data={"state": decision.attempt_end.value, "failure": failure},
        )
        if decision.attempt_end is not AttemptState.LOST:
            # Every host told that its last process is gone.
            # A host that a regrouping left out gives its devices back by itself.
            hosts = (await _attempt(session, token.job_id, token.attempt)).allocation.node_ids
            await session.execute(
                delete(Grant).where(
                    Grant.job_id == token.job_id,
                    Grant.attempt == token.attempt,
                    Grant.node_id.in_(hosts),
                )
            )
        state = decision.job_start
        changes: dict[str, Any] = {}
        if decision.restarts is not None:
            changes["restarts"] = decision.restarts
        if decision.restarts_step is not None:
            changes["restarts_step"] = decision.restarts_step
        for step in decision.job_path:
            await self._move_job(session, decision, state, step, now, changes)
            state = step
        return await _attempt(session, token.job_id, token.attempt)

    async def _move_job(
        self,
        session: AsyncSession,
        decision: MarkRunning | EndAttempt,
        start: JobState,
        end: JobState,
        now: datetime,
        changes: dict[str, Any] | None = None,
    ) -> None:
        """Have the job of an attempt follow it."""
        token = decision.token
        _check(
            await move_job(
                session, token.job_id, start, end,
                reason=decision.reason, now=now, attempt=token.attempt, changes=changes,
            )
        )  # fmt: skip

    async def _check_lost(self, session: AsyncSession, decision: EndAttempt) -> None:
        """A node that was lost when this was decided may have been heard since."""
        if not decision.lost_nodes:
            return
        reported = await session.scalars(
            select(Node.id).where(
                Node.id.in_(decision.lost_nodes), Node.state != NodeState.LOST.value
            )
        )
        if set(reported) == set(decision.lost_nodes):
            raise ConflictError

    def _isolation_seconds(self, spec: dict[str, Any]) -> float | None:
        """What an attempt keeps for its life, whatever the coordinator is told later."""
        stops = spec["recovery"].get("on_isolation") == "stop"
        return self._options.lost_after_seconds if stops else None

    async def _start(self, session: AsyncSession, decision: StartAttempt) -> Attempt:
        now = self._clock.now()
        facts, entry = decision.entry.job, decision.entry
        await lock_job(session, facts.id)
        assert entry.placed is not None
        job = await session.get(Job, facts.id)
        node_ids = [node.node_id for node in entry.placed]
        if job is None or not await hold_ready(session, node_ids):
            raise ConflictError
        size = sum(len(node.device_indices) for node in entry.placed)
        if size not in (job.sizes or [job.world_size]):
            raise ConflictError
        number = facts.attempt + 1
        allocation = allocation_of(entry.placed, entry.needs.device)
        planning = auto_plans.is_auto(job) and not auto_plans.keeps_plan(
            job, size, entry.needs.device
        )
        reason = decision.reason
        if planning:
            reason = Reason.of(
                ReasonCode.PLANNING_STRATEGY, node=entry.placed[0].node_name, placed=reason
            )
        plan, notes = await checkpoint_plan(session, job, self._options.resume_candidates)
        _check(
            await move_job(
                session,
                facts.id,
                facts.state,
                JobState.STARTING,
                reason=reason,
                now=now,
                attempt=facts.attempt,
                changes={
                    **({"plan": None, "measured_on": None} if planning else {}),
                    "attempt": number,
                    "generation": 1,
                    "world_size": size,
                    "started_at": job.started_at or now,
                    "restore_checkpoint_id": None,
                },
            )
        )
        if not planning and auto_plans.is_auto(job) and (chosen := auto_plans.plan_of(job)):
            notes.append(f"keeps its plan: {chosen.summary}")
        attempt = Attempt(
            job_id=facts.id,
            number=number,
            generation=1,
            **columns_of_reason(decision.reason),
            goal="run",
            revoked=False,
            world_size=size,
            allocation=allocation,
            in_place=regroups_in_place(job.spec),
            isolation_seconds=self._isolation_seconds(job.spec),
            generations=(
                GenerationRecord(
                    1,
                    now,
                    decision.reason.text,
                    size,
                    allocation,
                    reason_code=decision.reason.code.value,
                ),
            ),
            planning=planning,
            checkpoint_plan=plan,
            node_outcomes={},
            started_at=now,
        )
        await create_attempt(session, attempt)
        for node in entry.placed:
            for index in node.device_indices:
                session.add(
                    Grant(
                        node_id=node.node_id,
                        device_index=index,
                        job_id=facts.id,
                        attempt=number,
                    )
                )
        await session.flush()
        start = f"starts from {plan.resume[0]}" if plan.resume else "starts from the beginning"
        await record_event(
            session,
            facts.id,
            time=now,
            kind="attempt",
            code="attempt_started",
            reason="; ".join([f"attempt {number} {start}", *notes]),
            attempt=number,
            data={"state": AttemptState.STARTING.value, "allocation": allocation.as_json()},
        )
        return attempt


class _Touched:
    """Who has to look again once the transaction is committed."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self.nodes: set[str] = set()
        self.removed: set[str] = set()

    def attempt(self, attempt: Attempt) -> None:
        self.jobs.add(attempt.job_id)
        self.nodes.update(attempt.allocation.node_ids)


async def _holding(session: AsyncSession, attempt: Attempt) -> set[str]:
    """The nodes of which it holds devices: those that a regrouping left out among them."""
    rows = await session.execute(
        select(Grant.node_id).where(Grant.job_id == attempt.job_id, Grant.attempt == attempt.number)
    )
    return set(rows.scalars())


def _check(held: bool) -> None:
    """Go on if the guard of a change held.

    Raises:
        Stale: it did not.
    """
    if not held:
        raise ConflictError


def _can_quarantine(decision: Decision) -> bool:
    failure = decision.failure if isinstance(decision, EndAttempt | Regroup) else None
    return failure is not None and can_quarantine(failure.cause)


async def _attempt(session: AsyncSession, job_id: str, number: int) -> Attempt:
    attempt = await session.get(Attempt, (job_id, number), populate_existing=True)
    assert attempt is not None
    return attempt
