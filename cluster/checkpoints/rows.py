"""Loads and marks the rows of checkpoints."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, literal_column, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Owner, Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.checkpoints.views import checkpoint_view
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db.events import record_event
from trainhall.db.models import Checkpoint, Job

# As a literal: SQLite uses a partial index only where the statement itself has its condition.
IS_DELETING = Checkpoint.state == literal_column("'deleting'")
_OWNED = (
    select(Checkpoint, Job.project, Job.user)
    .join(Job, Job.id == Checkpoint.job_id)
    .where(Checkpoint.id == bindparam("at_id"))
)


async def load_checkpoint(
    session: AsyncSession, caller: Principal, checkpoint_id: str, action: Action
) -> tuple[Checkpoint, Owner]:
    """Load a checkpoint on which the caller may do this, and whose it is: its job's owner's.

    Raises:
        NotFoundError: there is none that they see.
        ForbiddenError: they see it, but may not do this.
    """
    found = (await session.execute(_OWNED, {"at_id": checkpoint_id})).one_or_none()
    if found is None:
        raise NotFoundError("checkpoint", checkpoint_id)
    row, project, user = found
    owner = Owner(row.id, project, user)
    caller.check(action, owner, "checkpoint")
    return row, owner


async def load_locked(session: AsyncSession, checkpoint_id: str, caller: Principal) -> Checkpoint:
    """Load one that the caller may change, once locked: it, or its job, may be deleted right now.

    Raises:
        NotFoundError: there is none that they see.
        ForbiddenError: they see it, but may not change it.
    """
    found, _ = await load_checkpoint(session, caller, checkpoint_id, Action.COMMAND)
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
