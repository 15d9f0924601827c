"""Views of experiments and trials, as the REST API returns them."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.experiments.analysis.views import RungResult
from trainhall.cluster.experiments.commands import allowed_commands
from trainhall.cluster.experiments.rating import best_trials
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.lifecycle.jobs import reason_columns
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import (
    UNFINISHED_TRIALS,
    WAITING_STATES,
    ExperimentState,
    TrialState,
)
from trainhall.db import experiments as tables
from trainhall.db import models
from trainhall.db.views import JsonObject, MetricValue, Page, Time, View


class Best(View):
    """Best configuration of an experiment so far, of those whose every repeat has a value.

    Until one has completed, with early stopping that of the highest rung reached."""

    trial: int
    job_id: str | None
    """Job of its best repeat; null if it was deleted."""
    value: float
    """Objective: the mean over the repeats."""
    step: int | None
    """Step of that rung; null once a trial has completed."""
    ties: list[int]
    """Other completed trials with the same value, at most two of them."""
    values: JsonObject
    """Values by the fields of the job spec that they replace."""


class Steps(View):
    """Optimizer steps of an experiment with early stopping."""

    taken: int
    in_full: int
    """Steps that all runs in full would take."""


class Experiment(View):
    """Experiment with the states of its runs and its best trial."""

    id: str
    name: str
    user: str | None
    """Owner, also of its jobs."""
    project: str
    kind: str
    """`sweep`, `benchmark` or `scaling`."""
    state: ExperimentState
    reason: str
    """Reason for the state, as a sentence; while it runs and none of its runs can start, why."""
    reason_code: str
    counts: dict[str, int]
    """Runs by state: `pending`, `stopped` (early), or the state of the run's job."""
    best: Best | None
    """Null until a trial has a value."""
    steps: Steps | None
    """Null without early stopping, and if it was cancelled before its first trial."""
    allowed_commands: list[Command]
    """Commands that have an effect in the experiment's state, and that the reader may give."""
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
    problem: str | None
    """Reason why it cannot run; null: it can. Only those of a benchmark or scaling study have
    one."""


class ExperimentPlan(View):
    """Result of a request that creates nothing: what an experiment would run."""

    name: str
    runs: int
    """Configurations times repeats."""
    code_missing: bool
    """The code that its job names has to be uploaded first."""
    hint: str | None
    """Metric of the objective that no recent job has, though a similar one; null: there is nothing
    to say."""
    configurations: list[Configuration]
    """Empty for method `tpe`, which chooses each from the results of those before it."""
    spec: JsonObject
    """Experiment as it was given, with its defaults."""


class Trial(View):
    """One run of an experiment."""

    number: int
    """Number of its configuration."""
    repeat: int
    position: int
    """Place in the order in which the runs start, from 1; random where speeds are
    compared."""
    job_id: str | None
    """Null before it is started, and if its job was deleted."""
    state: str
    """`pending`, `stopped` (early), or the state of its job."""
    reason: str
    """Reason for the state, as a sentence; empty while pending."""
    reason_code: str
    values: JsonObject
    """Values by the fields of the job spec that they replace."""
    rung: int | None
    """Rungs of early stopping at which its objective was measured; null: none yet."""
    results: list[RungResult]
    """Its objective at these rungs, the lowest rung first."""
    step: int | None
    """Finished optimizer steps; null before it is started."""
    objective: float | None
    """Value that rates it, with early stopping that at its last rung; null before it is measured,
    without a finite value, and if the run failed."""
    objective_step: int | None
    """Step of the rung that its objective is from; null without an objective, and once it has
    completed."""
    metrics: dict[str, MetricValue]
    """Last value of every job-wide series. NaN and infinities are strings."""
    finished_at: Time | None
    """When its job ended; null before, and if its job was deleted."""


class TrialPage(Page[Trial]):
    """Runs of an experiment, in their order."""


async def experiment_views(
    session: AsyncSession, experiments: Sequence[tables.Experiment], reader: Principal
) -> list[Experiment]:
    if not experiments:
        return []
    ids = [experiment.id for experiment in experiments]
    counts = await _counts(session, ids)
    taken = await _steps_taken(session, [e.id for e in experiments if _stops_early(e)])
    for experiment in experiments:
        if undecided := _undecided_runs(experiment, counts[experiment.id]):
            counts[experiment.id]["pending"] += undecided
    best = await best_trials(session, experiments)
    running = [e.id for e in experiments if e.state == ExperimentState.RUNNING]
    stuck = await _reasons_of_stuck(session, running)
    return [
        Experiment.of(
            experiment,
            **reason_columns(
                stuck.get(experiment.id) or Reason.stored(experiment.reason_code, experiment.reason)
            ),
            counts=counts[experiment.id],
            best=Best.of(best[experiment.id]) if experiment.id in best else None,
            steps=_steps(experiment, counts[experiment.id], taken.get(experiment.id, 0)),
            allowed_commands=_commands(experiment, reader),
        )
        for experiment in experiments
    ]


def _commands(experiment: tables.Experiment, reader: Principal) -> list[Command]:
    if not reader.may(Action.COMMAND, experiment.project, experiment.user):
        return []
    return allowed_commands(ExperimentState(experiment.state))


_NEVER = (ReasonCode.NEVER_FITS.value, ReasonCode.QUOTA_TOO_SMALL.value)
"""Jobs with these codes cannot start before a node or a quota changes."""


async def _reasons_of_stuck(session: AsyncSession, experiments: Sequence[str]) -> dict[str, Reason]:
    """Return why no run of an experiment can start, of those whose started runs all wait for what
    the cluster or a quota does not have: as many as may be unfinished, so that no other run
    starts. Runs that wait at a rung hold no place: they wait for a promotion, which may depend on
    those."""
    job = models.Job
    never_fits = job.state.in_(WAITING_STATES) & job.reason_code.in_(_NEVER)
    rows = await session.execute(
        select(tables.Trial.experiment_id, func.min(job.reason))
        .join(job, job.id == tables.Trial.job_id)
        .where(
            tables.Trial.experiment_id.in_(experiments),
            tables.Trial.state == TrialState.STARTED.value,
        )
        .group_by(tables.Trial.experiment_id)
        .having(func.count() == func.count(case((never_fits, 1))))
    )
    return {experiment: Reason.of(ReasonCode.NO_RUN_FITS, why=why) for experiment, why in rows}


async def _counts(session: AsyncSession, experiments: Sequence[str]) -> dict[str, dict[str, int]]:
    rows = await session.execute(
        select(tables.Trial.experiment_id, tables.Trial.state, models.Job.state, func.count())
        .outerjoin(models.Job, models.Job.id == tables.Trial.job_id)
        .where(tables.Trial.experiment_id.in_(experiments))
        .group_by(tables.Trial.experiment_id, tables.Trial.state, models.Job.state)
    )
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for experiment_id, state, job_state, count in rows:
        counts[experiment_id][shown_state(state, job_state)] += count
    return counts


def _undecided_runs(experiment: tables.Experiment, counts: dict[str, int]) -> int:
    """Return how many runs have no row yet: their values are still to be chosen."""
    if experiment.spec["method"] != "tpe" or experiment.state == ExperimentState.CANCELLED:
        return 0
    return int(experiment.spec["trials"] * experiment.spec["repeats"]) - sum(counts.values())


async def _steps_taken(session: AsyncSession, experiments: Sequence[str]) -> dict[str, int]:
    if not experiments:
        return {}
    rows = await session.execute(
        select(tables.Trial.experiment_id, func.sum(models.JobProgress.step))
        .join(models.JobProgress, models.JobProgress.job_id == tables.Trial.job_id)
        .where(tables.Trial.experiment_id.in_(experiments))
        .group_by(tables.Trial.experiment_id)
    )
    return {experiment_id: int(steps) for experiment_id, steps in rows}


def _steps(experiment: tables.Experiment, counts: dict[str, int], taken: int) -> Steps | None:
    if not _stops_early(experiment) or not counts:
        return None
    max_steps = experiment.spec["early_stopping"]["asha"]["max_steps"]
    return Steps(taken=taken, in_full=sum(counts.values()) * max_steps)


def _stops_early(experiment: tables.Experiment) -> bool:
    return experiment.spec.get("early_stopping") is not None


def trial_view(
    trial: tables.Trial,
    job: models.Job | None,
    progress: models.JobProgress | None,
    rungs: Sequence[int],
) -> Trial:
    """
    Args:
        rungs: steps of the experiment's rungs; empty without early stopping.
    """
    results = [
        RungResult(step=step, value=value)
        for step, value in zip(rungs, trial.results, strict=False)
    ]
    is_at_rung = trial.state != TrialState.COMPLETED and trial.objective is not None
    explains = job if job is not None and trial.state in UNFINISHED_TRIALS else trial
    return Trial.of(
        trial,
        state=shown_state(trial.state, job.state if job is not None else None),
        reason=explains.reason,
        reason_code=explains.reason_code,
        rung=len(trial.results) or None,
        results=results,
        objective_step=results[-1].step if results and is_at_rung else None,
        step=progress.step if progress is not None else None,
        metrics=progress.metrics if progress is not None else {},
        finished_at=job.finished_at if job is not None else None,
    )


def shown_state(state: str, job_state: str | None) -> str:
    """Return the state of a run, which until it ends is that of its job."""
    return job_state if state in UNFINISHED_TRIALS and job_state is not None else state
