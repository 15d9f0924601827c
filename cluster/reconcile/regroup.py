"""Applying a regrouping: an attempt resumes under its next generation, in one transaction."""

from dataclasses import replace
from datetime import datetime

from pydantic_core import to_jsonable_python
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import restart_candidates
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.lifecycle.alerts import report_if_stuck
from trainhall.cluster.lifecycle.host_report import dump_failure, reports_of
from trainhall.cluster.lifecycle.jobs import lock_job, record_reason, set_reason
from trainhall.cluster.lifecycle.nodes import hold_ready
from trainhall.cluster.lifecycle.reasons import event_data
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.reconcile.decisions import Regroup
from trainhall.cluster.reconcile.start import grants_of
from trainhall.cluster.scheduling.placement import allocation_of, devices_of
from trainhall.db.documents import Allocation, GenerationRecord
from trainhall.db.models import Attempt, Grant, Job
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.fencing import FencingToken

KEPT_GENERATIONS = 50
"""Number of generations of an attempt that are kept for people: the first and the newest."""


async def regroup(
    session: AsyncSession, decision: Regroup, now: datetime, resume_candidates: int
) -> tuple[Attempt, set[str]]:
    """Move the attempt to its next generation; return it and the hosts of the one before.

    Devices that it releases stay granted until their hosts report that nothing runs there.

    Raises:
        ConflictError: the token is outdated, the attempt does not run, failures since have left no
            rank with the state, or a host of the new allocation may get no work.
        sqlalchemy.exc.IntegrityError: a device was taken meanwhile.
    """
    attempt, job = await _lock_running(session, decision.token)
    reason, size_before = decision.reason, attempt.world_size
    before = set(attempt.allocation.node_ids)
    allocation = allocation_of(decision.placed, decision.device)
    record = GenerationRecord(
        generation=attempt.generation + 1,
        time=now,
        reason=reason.text,
        reason_code=reason.code.value,
        world_size=allocation.world_size,
        allocation=allocation,
        failure=dump_failure(decision.failure),
    )
    has_new_size = record.world_size in (job.sizes or [])
    if not has_new_size and record.world_size != size_before:
        raise ConflictError
    if not _keeps_state(attempt, allocation):
        raise ConflictError
    await _grant(session, attempt, decision, before)
    if has_new_size:
        attempt.spec = None
    _begin_generation(attempt, record)
    await _set_resume(session, attempt, job, resume_candidates)
    job.generation, job.world_size = record.generation, record.world_size
    set_reason(job, reason)
    set_reason(attempt, reason)
    if decision.restarts is not None:
        job.restarts = decision.restarts
    if decision.restarts_step is not None:
        job.restarts_step = decision.restarts_step
    await session.flush()
    await record_reason(
        session, job.id, "regrouped", reason, now,
        text=f"generation {record.generation}: {record.reason}",
        attempt=attempt.number,
        data={**to_jsonable_python(record), "before": size_before, **event_data(reason)},
    )  # fmt: skip
    await report_if_stuck(session, job.id, decision.failure, now)
    return attempt, before


async def _lock_running(session: AsyncSession, token: FencingToken) -> tuple[Attempt, Job]:
    """Lock an attempt and its job for the rest of the transaction.

    Raises:
        ConflictError: they do not run (any more) under this token.
    """
    await lock_job(session, token.job_id)
    attempt = await session.get(Attempt, (token.job_id, token.attempt), with_for_update=True)
    job = await session.get(Job, token.job_id)
    if (
        attempt is None
        or job is None
        or token != FencingToken(job.id, job.attempt, job.generation)
        or token != FencingToken(job.id, attempt.number, attempt.generation)
        or attempt.revoked
        or attempt.goal != "run"
        or attempt.state != AttemptState.RUNNING.value
        or job.state != JobState.RUNNING.value
    ):
        raise ConflictError
    return attempt, job


def _begin_generation(attempt: Attempt, record: GenerationRecord) -> None:
    joining = set(record.allocation.node_ids) - set(attempt.allocation.node_ids)
    since = attempt.gpus_since or attempt.started_at
    # The time of day may have been set back meanwhile.
    attempt.gpu_seconds += attempt.gpus * max(0.0, (record.time - since).total_seconds())
    attempt.gpus, attempt.gpus_since = record.allocation.gpus, record.time
    attempt.generation = record.generation
    attempt.allocation = record.allocation
    attempt.world_size = record.world_size
    attempt.rendezvous = None
    attempt.generations = _kept((*attempt.generations, record))
    # A host's report on an earlier stay says nothing about the one that begins.
    attempt.node_outcomes = {n: r for n, r in attempt.node_outcomes.items() if n not in joining}


async def _set_resume(
    session: AsyncSession, attempt: Attempt, job: Job, resume_candidates: int
) -> None:
    """Set the checkpoints to start from if the ranks that have the state fail before the others
    get it: the newest, of this attempt too."""
    names, _ = await restart_candidates(session, job)
    plan = replace(attempt.checkpoint_plan, resume=tuple(names[:resume_candidates]))
    if any((found := parse_name(each)) and found.attempt == attempt.number for each in names):
        plan = replace(plan, unrecorded=None)  # what it was to look for first is older
    attempt.checkpoint_plan = plan


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
    joining = {node.node_id for node in decision.placed} - before
    if any(node_id in joining for node_id, _ in held):
        raise ConflictError  # its processes of an earlier stay have not ended there
    new = [device for device in devices_of(decision.placed) if device not in held]
    if not await hold_ready(session, {node_id for node_id, _ in new}):
        raise ConflictError
    session.add_all(grants_of(attempt, new))
    await session.flush()


def _keeps_state(attempt: Attempt, allocation: Allocation) -> bool:
    """Return whether a live rank stays, as far as the hosts have reported."""
    living = attempt.allocation.devices
    for node_id, report in reports_of(attempt).items():
        if report.outcome is not None:
            living = frozenset(device for device in living if device[0] != node_id)
        elif report.generation == attempt.generation:
            living -= {(node_id, each.device_index) for each in report.failed_ranks}
    return not living or not living.isdisjoint(allocation.devices)


def _kept(generations: tuple[GenerationRecord, ...]) -> tuple[GenerationRecord, ...]:
    if len(generations) <= KEPT_GENERATIONS:
        return generations
    return (generations[0], *generations[-(KEPT_GENERATIONS - 1) :])
