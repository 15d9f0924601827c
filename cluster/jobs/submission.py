"""A new job's row, whether a user submits it or an experiment starts it."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.jobs.source.provenance import store_provenance
from trainhall.cluster.jobs.spec_changes import sizes_of, spec_columns
from trainhall.cluster.lifecycle.jobs import create_job, reason_columns
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import JobKind
from trainhall.db.models import Job
from trainhall.training.spec import JobSpec


@dataclass(frozen=True)
class RunOf:
    """Place of a job in an experiment."""

    experiment_id: str
    trial: int
    repeat: int


async def add_job(
    session: AsyncSession,
    job_id: str,
    spec: JobSpec,
    *,
    now: datetime,
    reason: Reason | None = None,
    user: str | None = None,
    run: RunOf | None = None,
) -> Job:
    """Queue a new job.

    Args:
        reason: None: a user submitted it.
        user: who, if that is known; None, too, for the coordinator.

    Raises:
        sqlalchemy.exc.IntegrityError: another caller took its number, or started the same run; try
            again.
    """
    newest = await session.scalar(select(func.max(Job.number)))
    job = Job(
        id=job_id,
        number=(newest or 0) + 1,
        name=spec.name,
        kind=JobKind.JOB.value,
        code=spec.uploaded_code,
        **spec_columns(spec),
        parameters=dict(spec.parameters) or None,
        tags=spec.tags or None,
        notes=spec.notes or None,
        priority=spec.priority,
        **reason_columns(reason or Reason.of(ReasonCode.SUBMITTED, user=user)),
        asked_by=user,
        attempt=0,
        generation=0,
        restarts=0,
        restarts_step=0,
        world_size=spec.resources.workers,
        sizes=sizes_of(spec),
        experiment_id=run.experiment_id if run is not None else None,
        trial=run.trial if run is not None else None,
        repeat=run.repeat if run is not None else None,
    )
    await create_job(session, job, now=now)
    if spec.provenance is not None:
        store_provenance(session, job_id, spec.provenance)
    return job
