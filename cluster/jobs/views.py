"""Jobs, attempts and events as the services hand them out, with the fields of the REST contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainhall.cluster.jobs import auto_plans
from trainhall.cluster.jobs.auto_plans import JobPlan
from trainhall.cluster.jobs.commands import Command, refused_commands
from trainhall.cluster.jobs.incidents import Incident, incidents_of
from trainhall.cluster.jobs.main_metric import MainMetric, main_metric
from trainhall.cluster.jobs.summaries import RunTime
from trainhall.db.documents import Allocation, GenerationRecord
from trainhall.db.models import Attempt, Event, Job, JobProgress
from trainhall.monitoring.health import Straggler


@dataclass(frozen=True)
class JobView:
    id: str
    name: str
    state: str
    reason: str
    reason_code: str
    """`trainhall.cluster.lifecycle.reasons.ReasonCode`."""
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    generation: int
    step: int
    """Finished optimizer steps."""
    total_steps: int | None
    """Number of steps; None until the first attempt has reported it."""
    world_size: int
    priority: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    ran_seconds: float
    """Total time of its ended attempts."""
    running_since: datetime | None
    """Start of the running attempt."""
    spec: dict[str, Any]
    metrics: dict[str, Any]
    """Last value of every job-wide series; NaN and infinities as text."""
    main_metric: MainMetric | None
    allowed_commands: list[Command]
    refused_commands: dict[Command, str]
    """The other commands, each with the reason as a sentence."""
    straggler: Straggler | None = None
    """The rank that holds up the others, if one does; of a job that runs."""
    warnings: Sequence[str] = ()
    """Problems of a job that runs on in spite of them; only while it has not ended."""
    plan: JobPlan | None = None
    """Plan of strategy `auto`, once it is planned."""


@dataclass(frozen=True)
class AttemptView:
    attempt: int
    generation: int
    state: str
    reason: str
    reason_code: str
    """`trainhall.cluster.lifecycle.reasons.ReasonCode`."""
    world_size: int
    allocation: Allocation
    generations: Sequence[GenerationRecord]
    """Oldest first."""
    started_at: datetime
    finished_at: datetime | None
    failure: dict[str, Any] | None
    """A `trainhall.training.link.failure.Failure`, of the first failing rank."""
    timeline: list[Incident] = field(default_factory=list)
    """Failures in it and their consequences, oldest first."""


@dataclass(frozen=True)
class EventView:
    seq: int
    time: datetime
    kind: str
    code: str
    reason: str
    attempt: int | None
    data: dict[str, Any]


@dataclass(frozen=True)
class CodeView:
    """Code that was uploaded."""

    sha256: str
    size: int
    """Bytes of the archive."""


def job_view(
    job: Job,
    progress: JobProgress,
    ran: RunTime,
    straggler: Straggler | None = None,
    warnings: Sequence[str] = (),
) -> JobView:
    refused = refused_commands(job)
    return JobView(
        id=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        reason_code=job.reason_code,
        attempt=job.attempt,
        generation=job.generation,
        step=progress.step,
        total_steps=progress.total_steps,
        world_size=job.world_size,
        priority=job.priority,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        ran_seconds=ran.seconds,
        running_since=ran.since,
        spec=job.spec,
        metrics=progress.metrics,
        main_metric=main_metric(job.spec, progress.metrics),
        allowed_commands=[command for command in Command if command not in refused],
        refused_commands=refused,
        straggler=straggler,
        warnings=warnings,
        plan=auto_plans.plan_of(job),
    )


def attempt_view(attempt: Attempt, following: Attempt | None) -> AttemptView:
    """
    Args:
        following: the job's next attempt.
    """
    return AttemptView(
        attempt=attempt.number,
        generation=attempt.generation,
        state=attempt.state,
        reason=attempt.reason,
        reason_code=attempt.reason_code,
        world_size=attempt.world_size,
        allocation=attempt.allocation,
        generations=attempt.generations,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        failure=attempt.failure,
        timeline=incidents_of(attempt, following),
    )


def event_view(event: Event) -> EventView:
    return EventView(
        seq=event.seq,
        time=event.time,
        kind=event.kind,
        code=event.code,
        reason=event.reason,
        attempt=event.attempt,
        data=event.data,
    )


def rfc3339(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
