"""Deletion of projects.

What is in one is deleted with it, if that is wished, job by job; what counts hours stays in the
ledger.
"""

from contextlib import suppress
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access import audit
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.service import end_credentials
from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.jobs.service import JobService
from trainhall.cluster.lifecycle.states import FINAL_STATES
from trainhall.db.accounts import ApiToken, Project, User
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment
from trainhall.db.models import Base, Job
from trainhall.db.reports import Report
from trainhall.db.tracking.runs import RunGroup


async def check_deletable(session: AsyncSession, name: str, *, with_contents: bool) -> None:
    """Check that a project is empty, or may be emptied.

    Raises:
        ConflictError: it is not; the message counts what is in it.
    """
    unfinished = (Job.project == name, Job.state.not_in(FINAL_STATES))
    running = (Experiment.project == name, Experiment.finished_at.is_(None))
    active = await _counts(session, jobs=(Job, unfinished), experiments=(Experiment, running))
    if active:
        raise ConflictError(
            f"project {name} has {active} that have not ended; cancel them, or wait for their end"
        )
    found = await _counts(
        session,
        jobs=(Job, (Job.project == name,)),
        experiments=(Experiment, (Experiment.project == name,)),
        reports=(Report, (Report.project == name,)),
    )
    if found and not with_contents:
        raise ConflictError(
            f"project {name} has {found}; delete them first, or with the project: "
            "?contents=delete, `trainhall projects rm --with-contents`"
        )


async def _counts(
    session: AsyncSession, **tables: tuple[type[Base], tuple[ColumnElement[bool], ...]]
) -> str:
    """Return how many there are of each, in words; empty: none."""
    parts = []
    for noun, (table, conditions) in tables.items():
        count = await session.scalar(select(func.count()).select_from(table).where(*conditions))
        if count:
            parts.append(f"{count} {noun if count > 1 else noun[:-1]}")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


async def delete_contents(
    db: Database, jobs: JobService, caller: Principal, name: str, now: datetime
) -> None:
    """Delete the jobs, experiments and reports of a project that have ended; each leaves a row in
    the audit log, as what is deleted stays so if the rest fails.

    Args:
        jobs: limited to the caller.

    Raises:
        WrongStateError: a node still has to report on a job, or it was started again.
    """
    async with db.session() as session:
        found = (await session.scalars(select(Job.id).where(Job.project == name))).all()
    for job_id in found:
        with suppress(NotFoundError):  # deleted meanwhile
            await jobs.delete(job_id)
    async with db.transaction() as session:
        ended = (Experiment.project == name, Experiment.finished_at.is_not(None))
        gone = delete(Experiment).where(*ended).returning(Experiment.id, Experiment.name)
        for each in (await session.execute(gone)).all():
            audit.record(
                session, caller, "experiment.delete", now,
                name=each.id, project=name, detail=each.name,
            )  # fmt: skip
        gone = delete(Report).where(Report.project == name).returning(Report.id, Report.title)
        for each in (await session.execute(gone)).all():
            audit.record(
                session, caller, "report.delete", now, name=each.id, project=name, detail=each.title
            )


async def delete_project(session: AsyncSession, name: str, now: datetime) -> None:
    """Delete an empty project; its service accounts are removed, and tokens for it end.

    Raises:
        ConflictError: it is not empty.
        NotFoundError: it was deleted meanwhile.
    """
    # A submission waits for the lock, and then finds no project.
    project = await session.get(Project, name, with_for_update=True)
    if project is None:
        raise NotFoundError("project", name)
    await check_deletable(session, name, with_contents=False)
    await session.execute(delete(ApiToken).where(ApiToken.project == name))
    await session.execute(delete(RunGroup).where(RunGroup.project == name))
    services = (User.project == name, User.removed_at.is_(None))
    for user_id in await session.scalars(select(User.id).where(*services)):
        await end_credentials(session, user_id, tokens=True)
    await session.execute(update(User).where(*services).values(removed_at=now))
    await session.execute(update(User).where(User.project == name).values(project=None))
    await session.delete(project)
