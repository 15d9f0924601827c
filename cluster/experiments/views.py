"""Views of experiments and trials, as the REST API returns them."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.commands import allowed_commands
from trainhall.cluster.experiments.rating import best_trials
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.lifecycle.states import ExperimentState, TrialState
from trainhall.db import experiments as tables
from trainhall.db import models
from trainhall.db.views import JsonObject, MetricValue, Page, Time, View


class Best(View):
    """Best configuration of an experiment so far, of those whose every repeat has a value."""

    trial: int
    job_id: str | None
    """Job of its best repeat; null if it was deleted."""
    value: float
    """Objective: the mean over the repeats."""
    values: JsonObject
    """Values by the fields of the job spec that they replace."""


class Experiment(View):
    """Experiment with the states of its runs and its best trial."""

    id: str
    name: str
    kind: str
    """`sweep`."""
    state: ExperimentState
    reason: str
    """Reason for the state, as a sentence."""
    reason_code: str
    counts: dict[str, int]
    """Runs by state: `pending`, or the state of the run's job."""
    best: Best | None
    """Null until a trial has completed with a value."""
    allowed_commands: list[Command]
    """Commands that have an effect in the experiment's state."""
    created_at: Time
    finished_at: Time | None
    """When its last run had ended: a cancelled experiment may have jobs that still end."""
    spec: JsonObject
    """Experiment as it was given, with its defaults."""


class ExperimentPage(Page[Experiment]):
    """Experiments, the newest first."""


class Configuration(View):
    """One combination of values that an experiment would run."""

    number: int
    """From 1."""
    values: JsonObject
    """Values by the fields of the job spec that they replace."""


class ExperimentPlan(View):
    """Result of a request that creates nothing: what an experiment would run."""

    name: str
    runs: int
    """Configurations times repeats."""
    code_missing: bool
    """The code that its job names has to be uploaded first."""
    configurations: list[Configuration]
    spec: JsonObject
    """Experiment as it was given, with its defaults."""


class Trial(View):
    """One run of an experiment."""

    number: int
    """Number of its configuration."""
    repeat: int
    job_id: str | None
    """Null before it is started, and if its job was deleted."""
    state: str
    """`pending`, or the state of its job."""
    reason: str
    """Reason for the state, as a sentence; empty while pending."""
    reason_code: str
    values: JsonObject
    """Values by the fields of the job spec that they replace."""
    step: int | None
    """Finished optimizer steps; null before it is started."""
    objective: float | None
    """Value that rates it; null until it has completed, and without a finite value."""
    metrics: dict[str, MetricValue]
    """Last value of every job-wide series. NaN and infinities are strings."""


class TrialPage(Page[Trial]):
    """Runs of an experiment, in their order."""


async def experiment_views(
    session: AsyncSession, experiments: Sequence[tables.Experiment]
) -> list[Experiment]:
    if not experiments:
        return []
    counts = await _counts(session, [experiment.id for experiment in experiments])
    best = await best_trials(session, experiments)
    return [
        Experiment.of(
            experiment,
            counts=counts[experiment.id],
            best=Best.of(best[experiment.id]) if experiment.id in best else None,
            allowed_commands=allowed_commands(ExperimentState(experiment.state)),
        )
        for experiment in experiments
    ]


async def _counts(session: AsyncSession, experiments: Sequence[str]) -> dict[str, dict[str, int]]:
    rows = await session.execute(
        select(tables.Trial.experiment_id, tables.Trial.state, models.Job.state, func.count())
        .outerjoin(models.Job, models.Job.id == tables.Trial.job_id)
        .where(tables.Trial.experiment_id.in_(experiments))
        .group_by(tables.Trial.experiment_id, tables.Trial.state, models.Job.state)
    )
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for experiment_id, state, job_state, count in rows:
        counts[experiment_id][_shown_state(state, job_state)] += count
    return counts


def trial_view(
    trial: tables.Trial, job: models.Job | None, progress: models.JobProgress | None
) -> Trial:
    explains = job if job is not None and trial.state == TrialState.STARTED else trial
    return Trial.of(
        trial,
        state=_shown_state(trial.state, job.state if job is not None else None),
        reason=explains.reason,
        reason_code=explains.reason_code,
        step=progress.step if progress is not None else None,
        metrics=progress.metrics if progress is not None else {},
    )


def _shown_state(state: str, job_state: str | None) -> str:
    """Return the state of a run, which while it is started is that of its job."""
    return job_state if state == TrialState.STARTED and job_state is not None else state
