"""Applying a start: devices are granted, and a job's next attempt begins, in one transaction."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import checkpoint_plan
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.jobs import plans
from trainhall.cluster.lifecycle.generations import regroups_in_place
from trainhall.cluster.lifecycle.jobs import create_attempt, lock_job, move_job, reason_columns
from trainhall.cluster.lifecycle.nodes import hold_ready
from trainhall.cluster.lifecycle.reasons import EventCode, Reason, ReasonCode
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import StartAttempt
from trainhall.cluster.scheduling.placement import DeviceKey, allocation_of, devices_of
from trainhall.db.documents import Allocation, GenerationRecord
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Grant, Job


async def start_attempt(
    session: AsyncSession, decision: StartAttempt, now: datetime, options: ClusterOptions
) -> Attempt:
    """Grant the devices of a placement and begin the job's next attempt on them.

    Raises:
        ConflictError: the job moved on, was resized, or a node may get no work any more.
        sqlalchemy.exc.IntegrityError: a device was taken meanwhile.
    """
    entry, facts = decision.entry, decision.entry.job
    assert entry.placed is not None
    allocation = allocation_of(entry.placed, entry.needs.device)
    job, size = await _locked_job(session, facts.id, allocation), allocation.world_size
    reason, number, device = decision.reason, facts.attempt + 1, entry.needs.device
    is_auto = plans.is_auto(job)
    before = await session.get(Attempt, (job.id, facts.attempt)) if facts.attempt else None
    planning = plans.must_plan(
        job, size, device, is_first=before is None, was_lost=before is not None and before.planning
    )
    if planning:
        host = entry.placed[0].node_name
        code = ReasonCode.PLANNING_STRATEGY if is_auto else ReasonCode.PREDICTING_STRATEGY
        reason = Reason.of(code, node=host, placed=reason)
    plan, notes = await checkpoint_plan(session, job, options.resume_candidates)
    changes = {
        "attempt": number,
        "generation": 1,
        "world_size": size,
        "started_at": job.started_at or now,
        "restore_checkpoint_id": None,
        **({"plan": None, "measured_on": None} if planning else {}),
    }
    if not await move_job(
        session, job.id, facts.state, JobState.STARTING,
        reason=reason, now=now, attempt=facts.attempt, changes=changes,
    ):  # fmt: skip
        raise ConflictError
    if is_auto and not planning and (chosen := plans.plan_of(job)):
        notes.append(f"keeps its plan: {chosen.summary}")
    attempt = _new_attempt(job, number, allocation, decision.reason, now, options)
    attempt.planning, attempt.checkpoint_plan = planning, plan
    await create_attempt(session, job, attempt)
    session.add_all(grants_of(attempt, devices_of(entry.placed)))
    await session.flush()
    start = f"starts from {plan.resume[0]}" if plan.resume else "starts from scratch"
    await record_event(
        session,
        job.id,
        time=now,
        kind="attempt",
        code=EventCode.ATTEMPT_STARTED,
        reason="; ".join([f"attempt {number} {start}", *notes]),
        attempt=number,
        data=to_jsonable_python({"state": AttemptState.STARTING, "allocation": allocation}),
    )
    return attempt


async def _locked_job(session: AsyncSession, job_id: str, allocation: Allocation) -> Job:
    """Return a job that may still start on these nodes, with as many workers."""
    await lock_job(session, job_id)
    job = await session.get(Job, job_id)
    if job is None or not await hold_ready(session, allocation.node_ids):
        raise ConflictError
    if allocation.world_size not in (job.sizes or [job.world_size]):
        raise ConflictError
    return job


def _new_attempt(
    job: Job,
    number: int,
    allocation: Allocation,
    reason: Reason,
    now: datetime,
    options: ClusterOptions,
) -> Attempt:
    size = allocation.world_size
    stops_isolated = job.spec["recovery"].get("on_isolation") == "stop"
    return Attempt(
        job_id=job.id,
        number=number,
        generation=1,
        **reason_columns(reason),
        goal="run",
        revoked=False,
        world_size=size,
        allocation=allocation,
        in_place=regroups_in_place(job.spec),
        # It is kept for the attempt's life, whatever is reported later.
        isolation_seconds=options.lost_after_seconds if stops_isolated else None,
        generations=(
            GenerationRecord(1, now, reason.text, size, allocation, reason_code=reason.code.value),
        ),
        node_outcomes={},
        started_at=now,
        gpus=allocation.gpus,
        gpus_since=now,
        gpu_seconds=0.0,
    )


def grants_of(attempt: Attempt, devices: Iterable[DeviceKey]) -> Iterator[Grant]:
    for node_id, index in devices:
        yield Grant(
            node_id=node_id, device_index=index, job_id=attempt.job_id, attempt=attempt.number
        )
