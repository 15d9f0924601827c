"""Where the newest attempts of jobs run."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt, Job


async def newest_allocations(
    session: AsyncSession, job_ids: Iterable[str]
) -> Mapping[str, list[dict[str, Any]]]:
    """`Attempt.allocation` by the id of the job; of those that have had an attempt."""
    newest = select(Job.id, Job.attempt).where(Job.id.in_(list(job_ids)))
    rows = await session.execute(
        select(Attempt.job_id, Attempt.allocation).where(
            tuple_(Attempt.job_id, Attempt.number).in_(newest)
        )
    )
    return {row.job_id: row.allocation for row in rows}
