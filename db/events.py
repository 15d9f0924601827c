"""Recording what happened to a job."""

from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db import stream
from trainhall.db.models import Event
from trainhall.db.sanitize import sanitize_json, sanitize_text


async def record_event(
    session: AsyncSession,
    job_id: str,
    *,
    time: datetime,
    kind: str,
    reason: str,
    code: str | None = None,
    attempt: int | None = None,
    data: dict[str, Any] | None = None,
) -> Event:
    """Add an event with the next sequence of the job's stream, in the session's transaction.

    Args:
        code: what happened, for code to compare; `kind` where nothing is more precise.

    Raises:
        LookupError: when there is no such job.
    """
    event = Event(
        job_id=job_id,
        seq=await stream.allocate(session, job_id),
        time=time,
        kind=kind,
        code=code or kind,
        reason=sanitize_text(reason),
        attempt=attempt,
        data=sanitize_json(data or {}),
    )
    session.add(event)
    return event
