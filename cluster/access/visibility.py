"""Visibility as conditions of SQL: lists, counts and cursors leave the rest out."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from trainhall.cluster.access.principal import Owner, Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import NotFoundError
from trainhall.db.accounts import Project
from trainhall.db.experiments import Experiment
from trainhall.db.models import Job

Column = InstrumentedAttribute[Any] | ColumnElement[Any]


def visible(caller: Principal, project: Column) -> list[ColumnElement[bool]]:
    """Return the conditions under which a caller sees rows of a table with this column."""
    return [] if caller.is_admin else [project.in_(sorted(caller.roles))]


def visible_or_none(caller: Principal, project: Column) -> list[ColumnElement[bool]]:
    """Return the conditions of `visible`; what belongs to no project is visible, too."""
    return [] if caller.is_admin else [or_(project.is_(None), *visible(caller, project))]


def of_present_project(
    caller: Principal, project: Column, time: Column
) -> list[ColumnElement[bool]]:
    """Return the conditions of `visible` for rows that outlive their project: one that is made
    again under an old name is another project, whose members see none of them."""
    if caller.is_admin:
        return []
    created = select(Project.created_at).where(Project.name == project).scalar_subquery()
    return [*visible(caller, project), time >= created]


@dataclass(frozen=True)
class OwnerFilter:
    """Owner and project that a list is reduced to; None: any."""

    user: str | None = None
    project: str | None = None

    def conditions(self, user: Column, project: Column) -> list[ColumnElement[bool]]:
        """Return the conditions for a table with these columns."""
        pairs = ((user, self.user), (project, self.project))
        return [column == wanted for column, wanted in pairs if wanted is not None]

    def matches(self, user: str | None, project: str | None) -> bool:
        """Return whether the list has what belongs to these."""
        return self.user in (None, user) and self.project in (None, project)


ANYBODY = OwnerFilter()


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
    return await _check(session, caller, Job, job_id, action)


async def check_experiment(
    session: AsyncSession, caller: Principal, experiment_id: str, action: Action = Action.READ
) -> None:
    """Check that there is an experiment on which the caller may do this, without loading it.

    Raises:
        NotFoundError: there is none that they see.
        ForbiddenError: they see it, but may not do this.
    """
    await _check(session, caller, Experiment, experiment_id, action)


async def _check(
    session: AsyncSession,
    caller: Principal,
    model: type[Job] | type[Experiment],
    key: str,
    action: Action,
) -> Owner:
    kind = model.__name__.lower()
    query = select(model.id, model.project, model.user).where(model.id == key)
    row = (await session.execute(query)).one_or_none()
    if row is None:
        raise NotFoundError(kind, key)
    owner = Owner(*row)
    caller.check(action, owner, kind)
    return owner
