"""Deletion of jobs for good: the record in one transaction, then in batches all that is large.

A coordinator that is killed before the first commits has deleted nothing. After it the job is gone
for everybody, and `deleted_jobs` says what is still to be done.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection, Table, delete, exists, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import NotFoundError, WrongStateError
from trainhall.cluster.jobs.commands import RIGHTS, Command, check_allowed
from trainhall.cluster.jobs.source import packages
from trainhall.cluster.ledger.keeper import close_entries
from trainhall.cluster.lifecycle.jobs import lock_job, reason_columns
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, experiment_label, job_label
from trainhall.cluster.lifecycle.states import FINAL_STATES, TrialState
from trainhall.db.alerts import Alert
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import (
    Attempt,
    Base,
    Checkpoint,
    DeletedJob,
    GradientRecord,
    Grant,
    Job,
    LogChunk,
    MetricChunk,
    MetricFrame,
    OrphanedCheckpoint,
    Series,
)

log = structlog.get_logger(__name__)

BATCH_ROWS = 200
"""Rows that one transaction deletes: a few megabytes, so that other writers hardly wait."""
# Frames first: the packer makes series of them.
_LARGE: tuple[type[Base], ...] = (MetricFrame, MetricChunk, Series, LogChunk, GradientRecord)


async def delete_job(session: AsyncSession, caller: Principal, job_id: str, now: datetime) -> str:
    """Delete the record of a job that has ended; return its project.

    Raises:
        ForbiddenError: the caller may not delete it.
        NotFoundError: there is no such job that they see.
        WrongStateError: it has not ended, or something still needs it.
    """
    await lock_job(session, job_id)
    job = await session.get(Job, job_id)
    if job is None:
        raise NotFoundError("job", job_id)
    caller.check(RIGHTS[Command.DELETE], job, "job")
    check_allowed(job, Command.DELETE)
    why = (await needed_by(session, [job])).get(job_id)
    if why is not None:
        label = job_label(job.id, job.name)
        raise WrongStateError(f"{label} cannot be deleted: {why}", job.state)
    project = job.project
    await delete_record(session, job_id, now)
    return project


async def needed_by(session: AsyncSession, jobs: Sequence[Job]) -> dict[str, str]:
    """Return why jobs that have ended cannot be deleted yet, by id; without those that can."""
    ended = [job.id for job in jobs if job.state in FINAL_STATES]
    if not ended:
        return {}
    rows = await session.execute(
        select(Job.id, Experiment.id, Experiment.name)
        .outerjoin(
            Experiment, (Experiment.id == Job.experiment_id) & Experiment.finished_at.is_(None)
        )
        .where(
            Job.id.in_(ended),
            Experiment.id.is_not(None) | exists().where(Grant.job_id == Job.id),
        )
    )
    return {job_id: _why_needed(experiment, name) for job_id, experiment, name in rows}


def _why_needed(experiment: str | None, name: str | None) -> str:
    if experiment is not None:
        label = experiment_label(experiment, name or "")
        return f"it is a run of {label}, which has not ended; cancel that, or wait for its end"
    return (
        "a node has not reported yet that its ranks have ended; wait until the node reconnects,"
        " or remove the node"
    )


async def delete_record(session: AsyncSession, job_id: str, now: datetime) -> None:
    """Delete a job's row, and with it those of its attempts, events and checkpoints."""
    folders = (
        select(Checkpoint.location, Attempt.allocation)
        .join(
            Attempt,
            (Attempt.job_id == Checkpoint.job_id) & (Attempt.number == Checkpoint.attempt),
        )
        # Others are in the coordinator's own store, whose folder of the job goes as a whole.
        .where(
            Checkpoint.job_id == job_id,
            Checkpoint.state != "deleted",
            Checkpoint.location.startswith("/"),
        )
    )
    await session.execute(
        insert(OrphanedCheckpoint).from_select(["location", "allocation"], folders)
    )
    of_job = (Alert.scope_kind == "job", Alert.scope_value == job_id, Alert.enabled.is_(True))
    # What it has still to send is sent.
    await session.execute(
        update(Alert).where(*of_job).values(enabled=False, reason="its job was deleted")
    )
    # Its figures go: the row of its experiment says so, unless it says why there are none.
    gone = reason_columns(Reason.of(ReasonCode.JOB_DELETED))
    completed = (Trial.job_id == job_id, Trial.state == TrialState.COMPLETED)
    await session.execute(update(Trial).where(*completed).values(**gone))
    connection = await session.connection()
    await connection.run_sync(close_entries, job_id, now)
    session.add(DeletedJob(job_id=job_id))
    environments = await packages.sets_of(session, job_id)
    await session.execute(delete(Job).where(Job.id == job_id))
    await packages.delete_unused(session, environments)


class DeletedJobs:
    """Deletes the metrics, logs, gradients and files of deleted jobs.

    Args:
        remove_files: removes a job's files in the data folder; called again after an OSError.
    """

    def __init__(self, db: Database, remove_files: Callable[[str], Awaitable[None]]) -> None:
        self._db = db
        self._remove_files = remove_files

    async def sweep(self) -> None:
        """Finish all deletions, in short transactions."""
        async with self._db.session() as session:
            jobs = (await session.scalars(select(DeletedJob.job_id))).all()
        for job_id in jobs:
            for model in _LARGE:
                while await self._delete_batch(model, job_id):
                    pass
            try:
                await self._remove_files(job_id)
            except OSError as error:
                log.error("files_not_removed", job=job_id, error=str(error))
                continue
            async with self._db.transaction() as session:
                await session.execute(delete(DeletedJob).where(DeletedJob.job_id == job_id))

    async def _delete_batch(self, model: type[Base], job_id: str) -> bool:
        """Delete some rows of a job; return whether there may be more."""
        return await self._db.write(lambda connection: _delete_some(connection, model, job_id))


def _delete_some(connection: Connection, model: type[Base], job_id: str) -> bool:
    table = model.__table__
    assert isinstance(table, Table)
    key = table.primary_key.columns
    if model is MetricChunk:
        of_job = table.c.series_id.in_(select(Series.id).where(Series.job_id == job_id))
    else:
        of_job = table.c.job_id == job_id
    some = select(*key).where(of_job).limit(BATCH_ROWS)
    deleted = connection.execute(delete(table).where(tuple_(*key).in_(some)))
    return deleted.rowcount == BATCH_ROWS
