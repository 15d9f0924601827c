"""Attempts that are not over: what their hosts may still ask for and store."""

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES
from trainhall.db.models import Attempt, Job


async def load_job_of_active(session: AsyncSession, job_id: str, attempt: int) -> Job:
    """Return the job of an attempt that is not over.

    Raises:
        ConflictError: it is over.
        NotFoundError: there is no such attempt.
    """
    job = await session.get(Job, job_id)
    found = await session.get(Attempt, (job_id, attempt))
    if job is None or found is None:
        raise NotFoundError("attempt", f"{attempt} of job {job_id}")
    if found.revoked or found.state not in ACTIVE_ATTEMPT_STATES:
        raise ConflictError(f"attempt {attempt} of job {job_id} is over")
    return job
