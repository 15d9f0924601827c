"""The recorded queue: who asked for how many devices, when, and for how long they were used."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, or_, select

from trainhall.cluster.lifecycle.states import WAITING_STATES, JobKind, JobState
from trainhall.cluster.queue.durations import Assumed, Completed, Durations
from trainhall.cluster.snapshot.model import JobFacts
from trainhall.db.models import Attempt, Job, JobProgress

MAX_JOBS = 2000
"""Most jobs to replay, the newest: they take two seconds of a processor, or fifteen where many
jobs wait."""


@dataclass(frozen=True)
class Work:
    """A job of the record."""

    job: JobFacts
    """Facts of it as it was submitted: queued, at that time."""
    device_seconds: float
    """Devices that its attempts held, times how long; or would hold, if it has never run."""
    waited_seconds: float | None = None
    """Time from its submission to its first start, as recorded."""
    assumed: Assumed | None = None
    """Duration of a job that waits and has never run."""


@dataclass(frozen=True)
class Workload:
    work: tuple[Work, ...]
    """Jobs in the order of submission."""
    left_out: int
    """Jobs that were taken out of the queue before they ran."""
    is_cut: bool
    """True if there are more jobs than are replayed."""


def load_workload(connection: Connection, since: datetime, now: datetime) -> Workload:
    """Load the jobs that waited or ran at some time since then."""
    present = or_(Job.created_at >= since, Job.finished_at.is_(None), Job.finished_at >= since)
    found = connection.execute(
        select(
            Job.id, Job.state, Job.name, Job.number, Job.priority, Job.world_size, Job.sizes,
            Job.project, Job.user, Job.created_at, Job.started_at, JobProgress.total_steps,
            Job.spec["resources"].label("resources"),
            Job.spec["preemption"].as_boolean().label("preemption"),
        )
        .join(JobProgress, JobProgress.job_id == Job.id)
        .where(present, Job.kind == JobKind.JOB.value)
        .order_by(Job.number.desc())
        .limit(MAX_JOBS + 1)
    ).all()  # fmt: skip
    is_cut = len(found) > MAX_JOBS
    rows = found[:MAX_JOBS][::-1]
    held = _held(connection, present & (Job.number >= rows[0].number), now) if rows else {}
    durations = Durations(
        Completed(row.name, row.user, held[row.id] / row.world_size)
        for row in rows
        if row.state == JobState.COMPLETED and row.id in held
    )
    work = []
    for row in rows:
        if row.id in held:
            work.append(_work(row, held[row.id]))
        elif row.state in WAITING_STATES:
            assumed = durations.of(row.name, row.user)
            work.append(_work(row, assumed.seconds * row.world_size, assumed))
    return Workload(tuple(work), left_out=len(rows) - len(work), is_cut=is_cut)


def _held(
    connection: Connection, condition: ColumnElement[bool], now: datetime
) -> dict[str, float]:
    """Return the device-seconds that each job's attempts held."""
    attempts = connection.execute(
        select(Attempt.job_id, Attempt.world_size, Attempt.started_at, Attempt.finished_at)
        .join(Job, Job.id == Attempt.job_id)
        .where(condition)
    )
    held: defaultdict[str, float] = defaultdict(float)
    for job_id, size, started, finished in attempts:
        held[job_id] += size * max(0.0, ((finished or now) - started).total_seconds())
    return held


def _work(row: Row[Any], device_seconds: float, assumed: Assumed | None = None) -> Work:
    resources = row.resources or {}
    job = JobFacts(
        id=row.id,
        name=row.name,
        number=row.number,
        priority=row.priority,
        state=JobState.QUEUED,
        reason="",
        attempt=0,
        workers=row.sizes[-1] if row.sizes else row.world_size,
        device=resources.get("device") or "auto",
        queued_at=row.created_at,
        restarts=0,
        restarts_step=0,
        max_restarts=0,
        step=0,
        sizes=tuple(row.sizes or ()),
        selector=resources.get("selector") or {},
        one_host=bool(resources.get("one_host")),
        project=row.project,
        user=row.user,
        preemption=row.preemption is not False,
        total_steps=row.total_steps,
    )
    started = row.started_at
    waited = None if started is None else (started - row.created_at).total_seconds()
    return Work(job, device_seconds, waited, assumed)
