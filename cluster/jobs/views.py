"""Views of jobs, attempts, events and code, as the REST API returns them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.jobs import plans
from trainhall.cluster.jobs.commands import Command, refused_commands
from trainhall.cluster.jobs.deletion import needed_by
from trainhall.cluster.jobs.incidents import Failure, Incident, failure_view, incidents_of
from trainhall.cluster.jobs.main_metric import MainMetric, main_metric
from trainhall.cluster.jobs.plans import PlanMeasured
from trainhall.cluster.jobs.summaries import (
    idle_times,
    job_warnings,
    not_finite_losses,
    run_times,
    stragglers,
    unrestorable,
)
from trainhall.cluster.lifecycle.states import AttemptState, JobKind, JobState
from trainhall.db import models
from trainhall.db.documents import Allocation
from trainhall.db.views import JsonObject, MetricValue, Page, Time, View
from trainhall.monitoring.health import Straggler
from trainhall.training.spec import NotPlannedError, ParallelismSpec
from trainhall.training.spec.plan import PlanCalibration, PlanPrediction


class PlanError(View):
    """Relative error of a prediction: measured divided by predicted, minus 1."""

    peak_memory_bytes: float | None
    """Null on a CPU, where that of tensors is not measured."""
    step_seconds: float


class Plan(View):
    """Plan of a job whose strategy is `auto` or predicted, and how accurate it was."""

    summary: str
    """Short form, such as `fsdp (shard 4)`."""
    parallelism: JsonObject
    """The choice as it would stand in a job spec."""
    reason: str
    assumed: str
    """Assumptions about the devices for the predicted step time."""
    device: str
    """Kind of device that it was planned for."""
    attempt: int
    """Attempt that it was made for; later ones with as many workers keep it."""
    world_size: int
    prediction: PlanPrediction
    calibration: PlanCalibration
    """Factors that the prediction was multiplied by."""
    is_named: bool
    """True: the spec names the strategy, and no other was looked for."""
    measured: PlanMeasured | None
    """Null until an attempt has completed or paused."""
    error: PlanError | None


class ExperimentRun(View):
    """Place of a job in an experiment."""

    id: str
    """Id of the experiment."""
    trial: int
    """Number of the configuration."""
    repeat: int


class Interactive(View):
    """Use of an interactive job by people."""

    idle_seconds: float
    """Time without a session after which it ends."""
    idle_since: Time | None
    """Null: a session is open, or the job does not run."""
    ends_at: Time | None
    """When it ends unless a session begins."""


class Job(View):
    """Job with its state and progress."""

    id: str
    name: str
    kind: JobKind
    """`run` for one that runs elsewhere, and whose client logs here; `job` for all others."""
    user: str | None
    """Its owner; null if it was submitted before there were users."""
    project: str
    state: JobState
    reason: str
    """Reason for the state, as a sentence."""
    reason_code: str
    """The same for programs, as in `preempted` or `waiting_for_devices`."""
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    generation: int
    """Rises within an attempt at every regrouping of its ranks."""
    step: int
    """Finished optimizer steps."""
    total_steps: int | None
    """Null until the first attempt has reported it."""
    world_size: int
    priority: int
    """Higher runs first."""
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    ran_seconds: float
    """Total run time of its ended attempts, without the time between them."""
    running_since: Time | None
    """Start of the current attempt; null if none runs."""
    spec: JsonObject | None
    """Job spec as submitted, with its defaults; null for a run."""
    metrics: dict[str, MetricValue]
    """Last value of every job-wide series. NaN and infinities are strings."""
    metric_ranges: dict[str, tuple[float, float]]
    """Smallest and largest finite value of every job-wide series, of steps that were repeated after
    a restart too."""
    gpu_hours: float
    """GPUs times hours of its attempts so far; 0 on CPUs."""
    main_metric: MainMetric | None
    """The `metric` of the spec, else a validation metric (`eval_…`, `val…`) that the job reports,
    else a loss; null for a job that reports none of them."""
    allowed_commands: list[Command]
    """Commands that the caller may give and that have an effect in the job's state."""
    refused_commands: dict[Command, str]
    """Every other command, with the reason as a sentence."""
    straggler: Straggler | None
    """Rank that slows down the others, step after step; null if there is none."""
    warnings: list[str]
    """Problems of a job that still runs: its newest checkpoint could not be saved, or a node of its
    ranks is suspect. Empty for a job that has ended."""
    plan: Plan | None
    """Plan of strategy `auto`, once it is made."""
    mesh: dict[str, int] | None
    """Sizes of the mesh of its ranks, the outermost dimension first, and the number of `servers`
    beside it; null for a script, and while no plan is made."""
    parameters: JsonObject
    """Parameters of the spec, and what the job has logged as such, as MLflow clients do. The spec's
    value counts for a name that both have."""
    mlflow_tags: dict[str, str]
    """Tags that the job's MLflow clients have set."""
    tags: list[str]
    notes: str
    """Markdown."""
    group: str | None
    """Name that related runs share, MLflow's experiment; null for a job, and for a run of the
    default experiment."""
    archived: bool
    """Lists leave it out unless their query has `archived:yes`."""
    experiment: ExperimentRun | None
    """Experiment that it is a run of; null for a job that a user submitted."""
    interactive: Interactive | None
    """Null for a job that is not interactive."""


class JobPage(Page[Job]):
    """Jobs, the newest first."""

    hint: str | None = None
    """Probable reason why the query finds nothing: a parameter or metric that no recent job has,
    with a similar one. Null: jobs were found, or there is none."""


class JobGroup(View):
    """Jobs of a list that share a value."""

    value: str | None
    """Null: jobs without a value."""
    name: str | None
    """Name of an experiment, whose id is the value."""
    count: int
    query: str
    """Term of a query that keeps these jobs."""


class JobGroupPage(Page[JobGroup]):
    """Groups of jobs, the largest first."""


class Generation(View):
    """An attempt between two regroupings of its ranks."""

    generation: int
    time: Time
    """When it was decided."""
    reason: str
    world_size: int
    allocation: Allocation
    failure: Failure | None
    """Failure of the rank or host that it replaced, if one had failed."""


class Attempt(View):
    """One execution of a job."""

    attempt: int
    generation: int
    state: AttemptState
    reason: str
    reason_code: str
    world_size: int
    allocation: Allocation
    generations: list[Generation]
    """Oldest first; an attempt that never regrouped has one."""
    started_at: Time
    finished_at: Time | None
    failure: Failure | None
    timeline: list[Incident]
    """Its failures and how it recovered from each, oldest first."""


class AttemptPage(Page[Attempt]):
    """Attempts of a job, the oldest first."""


class Event(View):
    """Event of a job."""

    seq: int
    """Position in the job's stream; it rises, with gaps."""
    time: Time
    kind: str
    """`state`, `attempt`, `checkpoint`, `not_saved`, `note` …"""
    code: str
    """Event code for programs: a `reason_code`, or as in `checkpoint_saved`."""
    reason: str
    attempt: int | None
    data: JsonObject


class EventPage(Page[Event]):
    """Events of a job, the oldest first."""


class Code(View):
    """Uploaded code of jobs."""

    sha256: str
    """Its name in a job spec, under `code`."""
    size: int
    """Bytes of the archive."""


async def job_views(
    session: AsyncSession,
    caller: Principal,
    rows: Sequence[tuple[models.Job, models.JobProgress]],
    now: datetime,
) -> list[Job]:
    """Build the views of jobs that the caller sees."""
    jobs = [job for job, _ in rows]
    ran = await run_times(session, jobs, now)
    slow = await stragglers(session, rows)
    warned = await job_warnings(session, jobs, now)
    needed, unsaved = await needed_by(session, jobs), await unrestorable(session, jobs)
    idle = await idle_times(session, jobs)
    views = []
    for job, progress in rows:
        others = {Command.DELETE: needed.get(job.id), Command.RESTORE: unsaved.get(job.id)}
        refused = refused_commands(job, caller, {each: why for each, why in others.items() if why})
        plan = plans.plan_of(job)
        view = Job.of(
            job,
            step=progress.step,
            total_steps=progress.total_steps,
            ran_seconds=ran[job.id].seconds,
            running_since=ran[job.id].since,
            spec=None if job.kind == JobKind.RUN else job.spec,
            metrics=progress.metrics,
            metric_ranges=progress.ranges,
            gpu_hours=ran[job.id].gpu_seconds / 3600,
            main_metric=main_metric(job.spec, progress.metrics),
            allowed_commands=[command for command in Command if command not in refused],
            refused_commands=refused,
            straggler=slow.get(job.id),
            warnings=[*warned.get(job.id, ()), *not_finite_losses(job, progress)],
            plan=Plan.of(plan, measured=plan.compared) if plan is not None else None,
            mesh=_mesh(job, plan),
            parameters=job.parameters or {},
            mlflow_tags=job.mlflow_tags or {},
            tags=job.tags or [],
            notes=job.notes or "",
            experiment=_experiment(job),
            interactive=_interactive(job, idle.get(job.id)),
        )
        views.append(view)
    return views


def _experiment(job: models.Job) -> ExperimentRun | None:
    if job.experiment_id is None or job.trial is None or job.repeat is None:
        return None
    return ExperimentRun(id=job.experiment_id, trial=job.trial, repeat=job.repeat)


def _interactive(job: models.Job, idle_since: datetime | None) -> Interactive | None:
    given = job.spec.get("interactive")
    if given is None:
        return None
    seconds = float(given["idle_seconds"])
    ends_at = idle_since and idle_since + timedelta(seconds=seconds)
    return Interactive(idle_seconds=seconds, idle_since=idle_since, ends_at=ends_at)


def _mesh(job: models.Job, plan: plans.JobPlan | None) -> dict[str, int] | None:
    if job.spec.get("task") is None:
        return None
    try:
        asked = plan.parallelism if plan is not None else job.spec["parallelism"]
        degrees = ParallelismSpec.model_validate(asked).degrees_on(job.world_size)
    except (ValueError, NotPlannedError):
        return None  # or the spec is another version's
    return {**degrees.sizes, "servers": degrees.servers}


def attempt_view(attempt: models.Attempt, following: models.Attempt | None) -> Attempt:
    """Build the view; `following` is the job's next attempt."""
    return Attempt.of(
        attempt,
        attempt=attempt.number,
        generations=[
            Generation.of(record, failure=failure_view(record.failure))
            for record in attempt.generations
        ],
        failure=failure_view(attempt.failure),
        timeline=incidents_of(attempt, following),
    )
