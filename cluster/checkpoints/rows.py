"""Loads and marks the rows of checkpoints."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import literal_column, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.views import checkpoint_view
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.service import load
from trainhall.db.events import record_event
from trainhall.db.models import Checkpoint

# As a literal: SQLite uses a partial index only where the statement itself has its condition.
IS_DELETING = Checkpoint.state == literal_column("'deleting'")


async def load_locked(session: AsyncSession, checkpoint_id: str) -> Checkpoint:
    """Load it once locked: it, or its job, may be deleted right now."""
    found = await load(session, Checkpoint, checkpoint_id)
    await lock_job(session, found.job_id)
    row = await session.get(Checkpoint, checkpoint_id, populate_existing=True)
    if row is None:
        raise NotFoundError("checkpoint", checkpoint_id)
    return row


async def mark_deleted(session: AsyncSession, ids: Sequence[str]) -> None:
    await session.execute(
        update(Checkpoint)
        .where(Checkpoint.id.in_(ids), Checkpoint.state == "deleting")
        .values(state="deleted")
    )


async def record_change(
    session: AsyncSession, row: Checkpoint, reason: str, code: EventCode, now: datetime
) -> None:
    """Record an event of the checkpoint's job, with the checkpoint as it is from now on."""
    await record_event(
        session,
        row.job_id,
        time=now,
        kind="checkpoint",
        code=code,
        reason=reason,
        attempt=row.attempt,
        # What it refuses changes, and is no part of the event.
        data=checkpoint_view(row).model_dump(mode="json", exclude={"refused_commands"}),
    )


def age(row: Checkpoint) -> tuple[int, int, int]:
    return (row.attempt, row.generation, row.step)
