"""Requests for profiles on their way to hosts, and what ranks report of them.

A request is part of the hosts' desired state until all its ranks have reported, so that an agent or
a coordinator may end in between.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.profiles.views import ProfileProblem, ranks_text, summary_of
from trainhall.db.models import Attempt
from trainhall.db.sanitize import sanitize_text
from trainhall.db.tables.profiles import Profile, RankProfile
from trainhall.training.link.profiling.messages import ProfileReport, ProfileRequest

_PENDING = (
    select(Profile)
    .where(Profile.job_id.in_(bindparam("jobs", expanding=True)), Profile.ended_at.is_(None))
    .order_by(Profile.number)
)


async def pending(session: AsyncSession, attempts: Sequence[Attempt]) -> dict[str, ProfileRequest]:
    """Return the requests that ranks of these attempts have to report on, by job."""
    if not attempts:
        return {}
    tokens = {(a.job_id, a.number, a.generation) for a in attempts}
    rows = await session.scalars(_PENDING, {"jobs": [a.job_id for a in attempts]})
    return {
        row.job_id: ProfileRequest.model_validate(row, from_attributes=True)
        for row in rows
        if (row.job_id, row.attempt, row.generation) in tokens
    }


async def store(
    session: AsyncSession, attempt: Attempt, report: ProfileReport, now: datetime
) -> str | None:
    """Store a rank's report; return what is worth an event of the job, if it is."""
    row = await session.get(Profile, (attempt.job_id, report.number), with_for_update=True)
    if row is None or row.attempt != attempt.number or row.ended_at is not None:
        return None
    if report.rank not in row.ranks:
        return None
    title = f"profile {row.number}"
    if report.state == "started":
        row.first_step = report.first_step
        await session.flush()
        return f"{title} of {ranks_text(row.ranks)} began with step {report.first_step}"
    result = RankProfile(
        saved=report.state == "saved",
        first_step=report.first_step,
        last_step=report.last_step,
        stall_seconds=report.stall_seconds,
        message=sanitize_text(report.message),
    )
    row.results = {**row.results, report.rank: result}
    row.first_step = row.first_step if row.first_step is not None else report.first_step
    is_last = set(row.results) >= set(row.ranks)
    if is_last:
        row.ended_at = now
    await session.flush()
    return f"{title} {_end_of(row)}" if is_last else None


def _end_of(row: Profile) -> str:
    failed = [
        ProfileProblem(rank=rank, message=result.message)
        for rank, result in sorted(row.results.items())
        if not result.saved
    ]
    saved = [result for result in row.results.values() if result.saved]
    if not saved:
        return f"failed: {summary_of(failed)}"
    steps = (
        f"steps {min(r.first_step or 0 for r in saved)} to {max(r.last_step or 0 for r in saved)}"
    )
    stall = max(result.stall_seconds or 0.0 for result in saved)
    text = f"has {steps} of {ranks_text(sorted(k for k, r in row.results.items() if r.saved))}"
    text += f"; its end held up training for {stall:.2f} s"
    notes = dict.fromkeys(result.message for result in saved if result.message)
    parts = [text, *notes, *([summary_of(failed)] if failed else [])]
    return "; ".join(parts)
