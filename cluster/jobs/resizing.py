"""Resizes of jobs that have ranks: an attempt keeps its spec until it has the new size."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.jobs import set_reason
from trainhall.cluster.lifecycle.reasons import EventCode, Reason, ReasonCode
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Job


async def resize_active(
    session: AsyncSession, job: Job, sizes: Sequence[int], change: str, *, user: str | None
) -> Reason:
    """Keep the spec that the attempt runs with; return the reason of the request.

    The reconciler adds to the job's reason until when the job keeps its size.
    """
    attempt = await session.get(Attempt, (job.id, job.attempt), with_for_update=True)
    assert attempt is not None
    attempt.spec = attempt.spec or job.spec
    reason = Reason.of(ReasonCode.RESIZE_REQUESTED, change=change, user=user)
    if job.state == JobState.PAUSING:
        return reason
    size = job.world_size
    if size not in sizes:
        set_reason(job, reason)
        return reason
    if job.reason_code == ReasonCode.RESIZE_REQUESTED:
        # An earlier resize that it still waited for is withdrawn.
        set_reason(job, Reason.stored(attempt.reason_code, attempt.reason))
    change = f"{change}; it continues with {size}"
    return Reason.of(ReasonCode.RESIZE_REQUESTED, change=change, user=user)


async def withdraw_unapplied(
    session: AsyncSession, job: Job, attempt: Attempt, now: datetime
) -> dict[str, Any]:
    """Return the columns that give a job that ends the spec that it ran with, and record that a
    resize was not applied; return none if it has that spec."""
    if attempt.spec is None or attempt.world_size in (job.sizes or [job.world_size]):
        return {}
    await record_event(
        session, job.id, time=now, kind="note", code=EventCode.RESIZE_NOT_APPLIED,
        reason=f"the resize to {describe_workers(job.spec)} was not applied: the job ended first",
        attempt=attempt.number,
    )  # fmt: skip
    # Only a restore makes it run again, and sets its sizes.
    return {"spec": attempt.spec, "sizes": None}


def describe_workers(spec: Mapping[str, Any]) -> str:
    resources = spec["resources"]
    if "max_workers" in resources:
        return f"{resources['min_workers']} to {resources['max_workers']} workers"
    return f"{resources['workers']} worker{'s' if resources['workers'] != 1 else ''}"
