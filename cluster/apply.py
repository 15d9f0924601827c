"""Applying decisions: one short transaction each, guarded by what it was decided from.

A guard that fails raises `Stale`, which rolls the transaction back: the next pass decides anew.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import plans
from trainhall.cluster.decisions import (
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
from trainhall.cluster.facts import NodeState
from trainhall.cluster.hearing import Hearing
from trainhall.cluster.lifecycle import (
    AttemptState,
    JobState,
    create_attempt,
    lock_job,
    move_attempt,
    move_job,
    tell_attempt,
)
from trainhall.cluster.node_faults import may_set_aside
from trainhall.cluster.node_lifecycle import UNHEARD, hold_ready, holds_devices, move_node
from trainhall.cluster.nodes import delete_node
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import Clock
from trainhall.cluster.regroup import (
    NotRegrouped,
    generation,
    holds,
    regroup,
    regroups_in_place,
)
from trainhall.cluster.resume import checkpoint_plan
from trainhall.cluster.scheduling.placement import allocation_of
from trainhall.cluster.set_aside import set_aside_failing
from trainhall.cluster.wakeups import Wakeups
from trainhall.db.database import Database
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Grant, Job, Node
from trainhall.training.link import Failure


class Stale(Exception):
    """The state is no longer what the decision was made from."""


class Applier:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        options: ClusterOptions,
        hearing: Hearing,
        wakeups: Wakeups,
    ) -> None:
        self._db = db
        self._clock = clock
        self._options = options
        self._hearing = hearing
        self._wakeups = wakeups

    async def explain(self, explanations: Sequence[Explain]) -> None:
        """Store why jobs wait: many at once, since a change at the queue's head concerns all."""
        table = Job.__table__
        statement = (
            update(Job)
            .where(table.c.id == bindparam("at_id"), table.c.state == bindparam("at_state"))
            .values(reason=bindparam("why"))
        )
        values = [
            {"at_id": e.job_id, "at_state": e.state.value, "why": e.reason} for e in explanations
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
                        touched.jobs.add(decision.token[0])
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
        except (Stale, NotRegrouped, IntegrityError):
            # An integrity error here is the grant's key at work: the device was taken meanwhile,
            # or its node went away.
            return False
        if _may_set_aside(decision):
            # On its own: who reports locks a node before its attempts.
            async with self._db.transaction() as session:
                await set_aside_failing(session, touched.nodes, self._clock.now())
        for job_id in touched.jobs:
            self._wakeups.stream(job_id)
        for node_id in touched.nodes | touched.removed:
            self._wakeups.node(node_id)
        for node_id in touched.removed:
            self._hearing.forget(node_id)
        return True

    async def _move_node(self, session: AsyncSession, decision: MoveNode) -> None:
        if self._hearing.silent_seconds(decision.node_id) < decision.after_seconds:
            raise Stale  # it was heard while this was decided
        if decision.end is NodeState.DRAINED:
            await session.get(Node, decision.node_id, with_for_update=True)
            if await holds_devices(session, decision.node_id):
                raise Stale
        _check(
            await move_node(
                session, decision.node_id, decision.start, decision.end,
                reason=decision.reason, now=self._clock.now(),
            )
        )  # fmt: skip

    async def _remove_node(self, session: AsyncSession, decision: RemoveNode) -> None:
        node = await session.get(Node, decision.node_id, with_for_update=True)
        if node is None or not node.removing:
            raise Stale
        if node.state not in UNHEARD and await holds_devices(session, node.id):
            raise Stale
        await delete_node(session, node, now=self._clock.now())

    async def _release(self, session: AsyncSession, decision: Release) -> None:
        given_up = decision.device_indices
        if given_up:
            # It may have been taken back by a later generation.
            attempt = await session.get(
                Attempt, (decision.job_id, decision.attempt), with_for_update=True
            )
            if attempt is None or holds(attempt.allocation, decision.node_id, given_up):
                raise Stale
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
        await lock_job(session, decision.token[0])
        start, end = AttemptState.STARTING, AttemptState.RUNNING
        _check(
            await move_attempt(session, decision.token, start, end, reason=decision.reason, now=now)
        )
        if decision.job_state is JobState.STARTING:
            await self._move_job(session, decision, JobState.STARTING, JobState.RUNNING, now)

    async def _keep_plan(self, session: AsyncSession, decision: KeepPlan) -> Attempt:
        job_id, number, generation = decision.token
        await lock_job(session, job_id)
        answered = await session.execute(
            update(Attempt)
            .where(
                Attempt.job_id == job_id,
                Attempt.number == number,
                Attempt.generation == generation,
                Attempt.planning.is_(True),
                Attempt.revoked.is_(False),
                Attempt.state == AttemptState.STARTING.value,
            )
            .values(planning=False)
        )
        assert isinstance(answered, CursorResult)
        _check(answered.rowcount == 1)
        attempt = await _attempt(session, job_id, number)
        job = await session.get(Job, job_id)
        assert job is not None
        job.plan, job.measured_on = plans.kept(decision.plan, job, attempt), None
        if job.state == JobState.STARTING:
            job.reason = decision.reason
        await session.flush()
        await record_event(
            session,
            job_id,
            time=self._clock.now(),
            kind="plan",
            reason=decision.reason,
            attempt=number,
            data=job.plan,
        )
        return attempt

    async def _stop(self, session: AsyncSession, decision: StopAttempt) -> Attempt:
        now = self._clock.now()
        job_id, number, _ = decision.token
        await lock_job(session, job_id)
        goal, failure = decision.goal, _stored(decision.failure)
        _check(
            await tell_attempt(
                session, decision.token, goal, reason=decision.reason, now=now, failure=failure
            )
        )
        await record_event(
            session, job_id, time=now, kind="attempt", reason=decision.reason, attempt=number
        )
        return await _attempt(session, job_id, number)

    async def _regroup(self, session: AsyncSession, decision: Regroup) -> tuple[Attempt, set[str]]:
        now, limit = self._clock.now(), self._options.resume_candidates
        return await regroup(session, decision, now, limit)

    async def _end(self, session: AsyncSession, decision: EndAttempt) -> Attempt:
        now = self._clock.now()
        job_id, number, _ = decision.token
        await lock_job(session, job_id)
        await self._check_lost(session, decision)
        failure = _stored(decision.failure)
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
        ended = f"attempt {number} {decision.attempt_end.value}"
        why = decision.attempt_reason
        await record_event(
            session,
            job_id,
            time=now,
            kind="attempt",
            reason=ended if why == decision.attempt_end.value else f"{ended}: {why}",
            attempt=number,
            data={"state": decision.attempt_end.value, "failure": failure},
        )
        if decision.attempt_end is not AttemptState.LOST:
            # Every host told that its last process is gone.
            # A host that a regrouping left out gives its devices back by itself.
            hosts = [h["node_id"] for h in (await _attempt(session, job_id, number)).allocation]
            await session.execute(
                delete(Grant).where(
                    Grant.job_id == job_id, Grant.attempt == number, Grant.node_id.in_(hosts)
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
        return await _attempt(session, job_id, number)

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
        job_id, number, _ = decision.token
        _check(
            await move_job(
                session, job_id, start, end,
                reason=decision.reason, now=now, attempt=number, changes=changes,
            )
        )  # fmt: skip

    async def _check_lost(self, session: AsyncSession, decision: EndAttempt) -> None:
        """A node that was lost when this was decided may have been heard since."""
        if not decision.lost_nodes:
            return
        heard = await session.scalars(
            select(Node.id).where(
                Node.id.in_(decision.lost_nodes), Node.state != NodeState.LOST.value
            )
        )
        if set(heard) == set(decision.lost_nodes):
            raise Stale

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
            raise Stale
        size = sum(len(node.device_indices) for node in entry.placed)
        if size not in (job.sizes or [job.world_size]):
            raise Stale
        number = facts.attempt + 1
        allocation = allocation_of(entry.placed, entry.needs.device)
        planning = plans.is_auto(job) and not plans.keeps_plan(job, size, entry.needs.device)
        reason = decision.reason
        if planning:
            reason = f"planning its strategy on node {entry.placed[0].node_name}; {reason}"
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
        if plans.is_auto(job) and job.plan is not None and not planning:
            notes.append(f"keeps its plan: {job.plan['told']}")
        attempt = Attempt(
            job_id=facts.id,
            number=number,
            generation=1,
            reason=decision.reason,
            goal="run",
            revoked=False,
            world_size=size,
            allocation=allocation,
            in_place=regroups_in_place(job.spec),
            isolation_seconds=self._isolation_seconds(job.spec),
            generations=[generation(1, now, decision.reason, allocation)],
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
        start = (
            f"starts from {plan['resume'][0]}" if plan["resume"] else "starts from the beginning"
        )
        await record_event(
            session,
            facts.id,
            time=now,
            kind="attempt",
            reason="; ".join([f"attempt {number} {start}", *notes]),
            attempt=number,
            data={"state": AttemptState.STARTING.value, "allocation": allocation},
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
        self.nodes.update(host["node_id"] for host in attempt.allocation)


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
        raise Stale


def _may_set_aside(decision: Decision) -> bool:
    failure = decision.failure if isinstance(decision, EndAttempt | Regroup) else None
    return failure is not None and may_set_aside(failure.cause)


def _stored(failure: Failure | None) -> dict[str, Any] | None:
    return failure.model_dump(mode="json") if failure else None


async def _attempt(session: AsyncSession, job_id: str, number: int) -> Attempt:
    attempt = await session.get(Attempt, (job_id, number), populate_existing=True)
    assert attempt is not None
    return attempt
