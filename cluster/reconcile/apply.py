"""Applying decisions: one short transaction each, guarded by what it was decided from.

A guard that fails raises `ConflictError`, which rolls the transaction back: the next pass decides
again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import ConflictError
from trainhall.cluster.jobs import plans
from trainhall.cluster.jobs.resizing import withdraw_unapplied
from trainhall.cluster.lifecycle.alerts import report_if_stuck
from trainhall.cluster.lifecycle.generations import holds
from trainhall.cluster.lifecycle.host_report import dump_failure
from trainhall.cluster.lifecycle.jobs import (
    has_token,
    lock_job,
    move_attempt,
    move_job,
    record_reason,
    request_stop,
    set_reason,
)
from trainhall.cluster.lifecycle.nodes import UNREACHABLE_STATES, holds_devices, move_node
from trainhall.cluster.lifecycle.reasons import event_data
from trainhall.cluster.lifecycle.states import FINAL_STATES, AttemptState, JobState, NodeState
from trainhall.cluster.nodes.devices import forget_device_use
from trainhall.cluster.nodes.fault_policy import can_quarantine
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.nodes.quarantine import quarantine_failing_nodes
from trainhall.cluster.nodes.service import delete_node
from trainhall.cluster.reconcile.decisions import (
    Change,
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
from trainhall.cluster.reconcile.start import start_attempt
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.models import Attempt, Grant, Job, Node
from trainhall.monitoring.prometheus import QUEUE_WAIT
from trainhall.training.fencing import FencingToken


@dataclass(frozen=True)
class _Touched:
    """Components to notify once the transaction is committed."""

    job: str | None = None
    nodes: frozenset[str] = frozenset()


def _touched(attempt: Attempt, others: Collection[str] = ()) -> _Touched:
    return _Touched(attempt.job_id, frozenset((*attempt.allocation.node_ids, *others)))


class Applier(Service):
    def __init__(self, context: ServiceContext, heartbeats: HeartbeatMonitor) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats
        self._to_examine: set[str] = set()
        """Nodes of failed attempts: to be quarantined if they have failed too often."""

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

    async def apply(self, decision: Change) -> bool:
        """Apply a decision; return False, with nothing changed, if the state had moved on."""
        try:
            async with self._db.transaction() as session:
                touched = await self._apply(session, decision)
        except (ConflictError, IntegrityError):
            # An integrity error here is the grant's key at work: the device was taken meanwhile,
            # or its node went away.
            return False
        if touched.job is not None:
            self._notifier.notify_viewers(touched.job)
        for node_id in touched.nodes:
            self._notifier.notify_node(node_id)
        if isinstance(decision, StartAttempt) and decision.entry.job.state is JobState.QUEUED:
            waited = self._clock.now() - decision.entry.job.queued_at
            QUEUE_WAIT.observe(max(waited.total_seconds(), 0.0))
        if isinstance(decision, RemoveNode):
            self._notifier.notify_node_removed(decision.node_id)
        if _can_quarantine(decision):
            self._to_examine |= touched.nodes
        await self.examine_nodes()
        return True

    async def examine_nodes(self) -> None:
        """Quarantine those nodes that have failed too often, as of the decisions applied so far."""
        if not self._to_examine:
            return
        # In a transaction of its own: reports lock a node before its attempts.
        async with self._db.transaction() as session:
            await quarantine_failing_nodes(session, self._to_examine, self._clock.now())
        # Not before the commit: after an error the next pass examines them.
        self._to_examine.clear()

    async def _apply(self, session: AsyncSession, decision: Change) -> _Touched:
        now, resume_candidates = self._clock.now(), self._options.resume_candidates
        match decision:
            case MoveNode():
                await self._move_node(session, decision)
            case RemoveNode():
                await self._remove_node(session, decision)
            case Release():
                # Of a device that is gone, the node's next report removes the row.
                await self._release(session, decision)
            case MarkRunning():
                await self._mark_running(session, decision)
                return _Touched(decision.token.job_id)
            case KeepPlan():
                return _touched(await self._keep_plan(session, decision))
            case StopAttempt():
                attempt = await self._stop(session, decision)
                return _touched(attempt, await _holding(session, attempt))
            case Regroup():
                return _touched(*await regroup(session, decision, now, resume_candidates))
            case EndAttempt():
                attempt = await self._end(session, decision)
                return _touched(attempt, await _holding(session, attempt))
            case StartAttempt():
                return _touched(await start_attempt(session, decision, now, self._options))
        return _Touched(nodes=frozenset({decision.node_id}))

    async def _move_node(self, session: AsyncSession, decision: MoveNode) -> None:
        if self._heartbeats.seconds_since(decision.node_id) < decision.after_seconds:
            raise ConflictError  # it reported while this was decided
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
        if decision.end is NodeState.LOST:
            await forget_device_use(session, decision.node_id)

    async def _remove_node(self, session: AsyncSession, decision: RemoveNode) -> None:
        node = await session.get(Node, decision.node_id, with_for_update=True)
        if node is None or not node.removing:
            raise ConflictError
        if node.state not in UNREACHABLE_STATES and await holds_devices(session, node.id):
            raise ConflictError
        await delete_node(session, node, now=self._clock.now())

    async def _release(self, session: AsyncSession, decision: Release) -> None:
        released_indices = decision.device_indices
        if released_indices:
            # It may have been taken back by a later generation.
            attempt = await session.get(
                Attempt, (decision.job_id, decision.attempt), with_for_update=True
            )
            if attempt is None or holds(attempt.allocation, decision.node_id, released_indices):
                raise ConflictError
        await session.execute(
            delete(Grant).where(
                Grant.node_id == decision.node_id,
                Grant.job_id == decision.job_id,
                Grant.attempt == decision.attempt,
                *([Grant.device_index.in_(released_indices)] if released_indices else []),
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
                *has_token(token),
                Attempt.planning.is_(True),
                Attempt.state == AttemptState.STARTING.value,
            )
            .values(planning=False)
        )
        assert isinstance(answered, CursorResult)
        _check(answered.rowcount == 1)
        attempt = await _attempt(session, token.job_id, token.attempt)
        job = await session.get(Job, token.job_id)
        assert job is not None
        if decision.plan is not None:
            plans.keep(decision.plan, job, attempt)
        if job.state == JobState.STARTING:
            set_reason(job, decision.reason)
        await session.flush()
        now = self._clock.now()
        await record_reason(
            session, job.id, "plan", decision.reason, now, attempt=token.attempt, data=job.plan
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
        await record_reason(
            session, token.job_id, "attempt", decision.reason, now,
            attempt=token.attempt, data=event_data(decision.reason),
        )  # fmt: skip
        return await _attempt(session, token.job_id, token.attempt)

    async def _end(self, session: AsyncSession, decision: EndAttempt) -> Attempt:
        now = self._clock.now()
        token = decision.token
        await lock_job(session, token.job_id)
        await self._check_lost(session, decision)
        failure = dump_failure(decision.failure)
        _check(
            await move_attempt(
                session, token, decision.attempt_start, decision.attempt_end,
                reason=decision.attempt_reason, now=now,
                changes={"failure": failure} if failure else None,
            )
        )  # fmt: skip
        ended = f"attempt {token.attempt} {decision.attempt_end.value}"
        why = decision.attempt_reason.text
        await record_reason(
            session, token.job_id, "attempt", decision.attempt_reason, now,
            text=ended if why == decision.attempt_end.value else f"{ended}: {why}",
            attempt=token.attempt,
            data={"state": decision.attempt_end.value, "failure": failure},
        )  # fmt: skip
        await report_if_stuck(session, token.job_id, decision.failure, now)
        if decision.attempt_end is not AttemptState.LOST:
            # Every host reported that its last process is gone.
            # A host that a regrouping left out releases its devices on its own.
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
        if decision.job_path[-1] in FINAL_STATES:
            changes |= await _withdraw_resize(session, token, now)
        if decision.restarts is not None:
            changes["restarts"] = decision.restarts
        if decision.restarts_step is not None:
            changes["restarts_step"] = decision.restarts_step
        if decision.pauses_after is not None:
            changes["pauses_after"] = decision.pauses_after
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
        """Update the job of an attempt to match it."""
        token = decision.token
        _check(
            await move_job(
                session, token.job_id, start, end,
                reason=decision.reason, now=now, attempt=token.attempt, changes=changes,
            )
        )  # fmt: skip

    async def _check_lost(self, session: AsyncSession, decision: EndAttempt) -> None:
        """Raise if every node that was lost at the time of the decision has reported since."""
        if not decision.lost_nodes:
            return
        reported = await session.scalars(
            select(Node.id).where(
                Node.id.in_(decision.lost_nodes), Node.state != NodeState.LOST.value
            )
        )
        if set(reported) == set(decision.lost_nodes):
            raise ConflictError


async def _withdraw_resize(
    session: AsyncSession, token: FencingToken, now: datetime
) -> dict[str, Any]:
    job = await session.get(Job, token.job_id)
    assert job is not None
    attempt = await _attempt(session, token.job_id, token.attempt)
    return await withdraw_unapplied(session, job, attempt, now)


async def _holding(session: AsyncSession, attempt: Attempt) -> set[str]:
    """Return the nodes whose devices it holds, those left out by a regrouping included."""
    rows = await session.execute(
        select(Grant.node_id).where(Grant.job_id == attempt.job_id, Grant.attempt == attempt.number)
    )
    return set(rows.scalars())


def _check(held: bool) -> None:
    """Continue if the guard of a change held.

    Raises:
        ConflictError: it did not.
    """
    if not held:
        raise ConflictError


def _can_quarantine(decision: Change) -> bool:
    failure = decision.failure if isinstance(decision, EndAttempt | Regroup) else None
    return failure is not None and can_quarantine(failure.cause)


async def _attempt(session: AsyncSession, job_id: str, number: int) -> Attempt:
    attempt = await session.get(Attempt, (job_id, number), populate_existing=True)
    assert attempt is not None
    return attempt
