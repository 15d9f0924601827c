"""Recording what happened to a job."""

from datetime import datetime
from enum import StrEnum
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
    code: StrEnum,
    reason: str,
    attempt: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Add an event with the next sequence of the job's stream, in the session's transaction.

    Args:
        code: `ReasonCode` or `EventCode`: what happened, for programs to compare.

    Raises:
        LookupError: when there is no such job.
    """
    event = Event(
        job_id=job_id,
        seq=await stream.allocate(session, job_id),
        time=time,
        kind=kind,
        code=code.value,
        reason=sanitize_text(reason),
        attempt=attempt,
        data=sanitize_json(data or {}),
    )
    session.add(event)
