"""Recording what happened to a job."""

from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db import stream
from trainhall.db.models import Event


async def record_event(
    session: AsyncSession,
    job_id: str,
    *,
    time: datetime,
    kind: str,
    reason: str,
    attempt: int | None = None,
    data: dict[str, Any] | None = None,
) -> Event:
    """Add an event with the next sequence of the job's stream, in the session's transaction.

    Raises:
        LookupError: when there is no such job.
    """
    event = Event(
        job_id=job_id,
        seq=await stream.allocate(session, job_id),
        time=time,
        kind=kind,
        reason=_storable(reason),
        attempt=attempt,
        data=data or {},
    )
    session.add(event)
    return event


def _storable(text: str) -> str:
    """Postgres keeps no NUL and no halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
