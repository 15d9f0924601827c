"""How long jobs ran: the time that their attempts took, without pauses and waits between them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt


@dataclass(frozen=True)
class RunTime:
    """What the attempts that ended took, and since when another goes on."""

    seconds: float = 0.0
    since: datetime | None = None


async def run_times(session: AsyncSession, job_ids: Iterable[str]) -> dict[str, RunTime]:
    """By the jobs' ids; one without an attempt has none."""
    times = {job_id: RunTime() for job_id in job_ids}
    found = await session.execute(
        select(Attempt.job_id, Attempt.started_at, Attempt.finished_at).where(
            Attempt.job_id.in_(times)
        )
    )
    for job_id, started_at, finished_at in found:
        time = times[job_id]
        if finished_at is None:
            times[job_id] = replace(time, since=started_at)
        else:
            # The time of day may have been set back meanwhile.
            ran = max(0.0, (finished_at - started_at).total_seconds())
            times[job_id] = replace(time, seconds=time.seconds + ran)
    return times
