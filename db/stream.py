"""The durable sequence of a job's live stream."""

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import JobProgress

# Built once: it is run for every event.
_ALLOCATE = (
    update(JobProgress)
    .where(JobProgress.job_id == bindparam("at_job"))
    .values(stream_seq=JobProgress.stream_seq + 1)
    .returning(JobProgress.stream_seq)
    .execution_options(synchronize_session=False)
)


async def allocate(session: AsyncSession, job_id: str) -> int:
    """Allocate a fresh sequence, to be stored in the same transaction.

    It locks the job's progress row until the commit, so sequences become visible in their order:
    a reader that has seen n finds no smaller one later.

    Raises:
        LookupError: when there is no such job.
    """
    last = await session.scalar(_ALLOCATE, {"at_job": job_id})
    if last is None:
        raise LookupError(f"no job {job_id!r}")
    return int(last)
