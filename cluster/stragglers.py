"""The stragglers of jobs that run: who holds up the others, and where."""

from collections.abc import Iterable

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle import JobState
from trainhall.db.models import Attempt, Job, JobProgress
from trainhall.monitoring.health import Straggler, straggler_of


async def stragglers(
    session: AsyncSession, rows: Iterable[tuple[Job, JobProgress]]
) -> dict[str, Straggler]:
    """By the id of the job; those of jobs that run alone, and that have one."""
    found = {
        job.id: progress.metrics
        for job, progress in rows
        if job.state == JobState.RUNNING and straggler_of(progress.metrics, None) is not None
    }
    if not found:
        return {}
    newest = select(Job.id, Job.attempt).where(Job.id.in_(found))
    allocations = await session.execute(
        select(Attempt.job_id, Attempt.allocation).where(
            tuple_(Attempt.job_id, Attempt.number).in_(newest)
        )
    )
    told = {job_id: straggler_of(found[job_id], allocation) for job_id, allocation in allocations}
    return {job_id: straggler for job_id, straggler in told.items() if straggler is not None}
