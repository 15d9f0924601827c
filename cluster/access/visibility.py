"""Visibility as conditions of SQL: lists, counts and cursors leave the rest out."""

from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from trainhall.cluster.access.principal import Owner, Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import NotFoundError
from trainhall.db.models import Job

Column = InstrumentedAttribute[Any] | ColumnElement[Any]


def visible(caller: Principal, project: Column) -> list[ColumnElement[bool]]:
    """Return the conditions under which a caller sees rows of a table with this column."""
    return [] if caller.is_admin else [project.in_(sorted(caller.roles))]


def of_visible_jobs(caller: Principal, job_id: Column) -> list[ColumnElement[bool]]:
    """Return the conditions under which a caller sees rows that belong to a job."""
    if caller.is_admin:
        return []
    return [job_id.in_(select(Job.id).where(*visible(caller, Job.project)))]


async def check_job(
    session: AsyncSession, caller: Principal, job_id: str, action: Action = Action.READ
) -> Owner:
    """Check that there is a job on which the caller may do this, without loading its spec; return
    whose it is.

    Raises:
        NotFoundError: there is none that they see.
        ForbiddenError: they see it, but may not do this.
    """
    found = await session.execute(select(Job.id, Job.project, Job.user).where(Job.id == job_id))
    row = found.one_or_none()
    if row is None:
        raise NotFoundError("job", job_id)
    owner = Owner(*row)
    caller.check(action, owner, "job")
    return owner
