"""Applying a regrouping: an attempt goes on under its next generation, in one transaction."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import CursorResult, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import restart_candidates
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.lifecycle.host_report import dump_failure, parse_host_report
from trainhall.cluster.lifecycle.jobs import columns_of_reason, lock_job
from trainhall.cluster.lifecycle.nodes import hold_ready
from trainhall.cluster.lifecycle.reasons import event_data
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.reconcile.decisions import Regroup
from trainhall.cluster.scheduling.placement import allocation_of
from trainhall.db.documents import Allocation, GenerationRecord
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Grant, Job
from trainhall.training.checkpoint.format.names import parse_name

KEPT_GENERATIONS = 50
"""Of an attempt, for people; the first and the newest."""


async def regroup(
    session: AsyncSession, decision: Regroup, now: datetime, resume_candidates: int
) -> tuple[Attempt, set[str]]:
    """The attempt under its next generation, and the hosts of the one before.

    Should those that have the state fall before the others get it, all begin at the newest
    checkpoint, of this attempt too.

    Devices that it gives up stay granted until their hosts tell that nothing runs there.

    Raises:
        ConflictError: the token is not the attempt's any more, it does not run, ranks have fallen
            since so that nobody who stays would have the state, or a host of the new allocation may
            get no work.
        IntegrityError: a device was taken meanwhile.
    """
    token = decision.token
    await lock_job(session, token.job_id)
    attempt = await session.get(Attempt, (token.job_id, token.attempt), with_for_update=True)
    job = await session.get(Job, token.job_id)
    if (
        attempt is None
        or job is None
        or (attempt.generation, job.attempt) != (token.generation, token.attempt)
        or attempt.revoked
        or attempt.goal != "run"
        or attempt.state != AttemptState.RUNNING.value
        or job.state != JobState.RUNNING.value
    ):
        raise ConflictError
    before = set(attempt.allocation.node_ids)
    allocation = allocation_of(decision.placed, decision.device)
    size = sum(len(node.device_indices) for node in decision.placed)
    if size != attempt.world_size and size not in (job.sizes or []):
        raise ConflictError
    if not _keeps_state(attempt, allocation):
        raise ConflictError
    await _grant(session, attempt, decision, before)
    record = GenerationRecord(
        generation=token.generation + 1,
        time=now,
        reason=decision.reason.text,
        reason_code=decision.reason.code.value,
        world_size=size,
        allocation=allocation,
        failure=dump_failure(decision.failure),
    )
    size_before = attempt.world_size
    joining = {node.node_id for node in decision.placed} - before
    attempt.generation = record.generation
    attempt.allocation = allocation
    attempt.world_size = size
    if size in (job.sizes or []):
        attempt.spec = None
    attempt.rendezvous = None
    names, _ = await restart_candidates(session, job)
    plan = replace(attempt.checkpoint_plan, resume=tuple(names[:resume_candidates]))
    if any((found := parse_name(each)) and found.attempt == token.attempt for each in names):
        plan = replace(plan, unrecorded=None)  # what it was to look for first is older
    attempt.checkpoint_plan = plan
    attempt.reason, attempt.reason_code = record.reason, record.reason_code
    attempt.generations = _kept((*attempt.generations, record))
    # What a host told of an earlier stay is no word on the one that begins.
    attempt.node_outcomes = {n: t for n, t in attempt.node_outcomes.items() if n not in joining}
    moved = await session.execute(
        update(Job)
        .where(
            Job.id == token.job_id,
            Job.attempt == token.attempt,
            Job.generation == token.generation,
        )
        .values(
            generation=record.generation,
            world_size=size,
            **columns_of_reason(decision.reason),
            **({} if decision.restarts is None else {"restarts": decision.restarts}),
            **({} if decision.restarts_step is None else {"restarts_step": decision.restarts_step}),
        )
    )
    assert isinstance(moved, CursorResult)
    if moved.rowcount != 1:
        raise ConflictError
    await session.flush()
    await record_event(
        session,
        token.job_id,
        time=now,
        kind="regrouped",
        code=record.reason_code,
        reason=f"generation {record.generation}: {record.reason}",
        attempt=token.attempt,
        data={**record.as_json(), "before": size_before, **event_data(decision.reason)},
    )
    return attempt, before


async def _grant(
    session: AsyncSession, attempt: Attempt, decision: Regroup, before: set[str]
) -> None:
    """Grant what the attempt does not hold yet. What it is still leaving it may have back, on a
    host that it has not left."""
    rows = await session.execute(
        select(Grant.node_id, Grant.device_index).where(
            Grant.job_id == attempt.job_id, Grant.attempt == attempt.number
        )
    )
    held = {(node_id, index) for node_id, index in rows}
    joining = [node.node_id for node in decision.placed if node.node_id not in before]
    if any(node_id in joining for node_id, _ in held):
        raise ConflictError  # its processes of an earlier stay have not ended there
    wanted = [(node.node_id, i) for node in decision.placed for i in node.device_indices]
    new = [place for place in wanted if place not in held]
    if not await hold_ready(session, {node_id for node_id, _ in new}):
        raise ConflictError
    for node_id, index in new:
        session.add(
            Grant(
                node_id=node_id,
                device_index=index,
                job_id=attempt.job_id,
                attempt=attempt.number,
            )
        )
    await session.flush()


def _keeps_state(attempt: Attempt, allocation: Allocation) -> bool:
    """Of the ranks that live, as far as their hosts have told, one stays."""
    living = attempt.allocation.devices
    for node_id, stored in attempt.node_outcomes.items():
        report = parse_host_report(stored)
        if report is not None and report.outcome is not None:
            living = frozenset(device for device in living if device[0] != node_id)
        elif report is not None and report.generation == attempt.generation:
            living -= {(node_id, each.device_index) for each in report.fallen}
    return not living or not living.isdisjoint(allocation.devices)


def _kept(generations: tuple[GenerationRecord, ...]) -> tuple[GenerationRecord, ...]:
    if len(generations) <= KEPT_GENERATIONS:
        return generations
    return (generations[0], *generations[-(KEPT_GENERATIONS - 1) :])
