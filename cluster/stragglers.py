"""The stragglers of jobs that run: who holds up the others, and where."""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.allocations import newest_allocations
from trainhall.cluster.lifecycle import JobState
from trainhall.db.models import Job, JobProgress
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
    allocations = await newest_allocations(session, found)
    told = {
        job_id: straggler_of(found[job_id], allocation)
        for job_id, allocation in allocations.items()
    }
    return {job_id: straggler for job_id, straggler in told.items() if straggler is not None}
