"""Records of runs: their results at rungs, and their ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import or_, select, update
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.asha import RunKey, Stop
from trainhall.cluster.experiments.decide import (
    ExperimentFacts,
    StartedRun,
    Step,
    StoppedTrial,
)
from trainhall.cluster.experiments.load import running_reason
from trainhall.cluster.experiments.rating import missing_objective, read_objective
from trainhall.cluster.experiments.runs import run_name
from trainhall.cluster.experiments.spec import AshaSpec
from trainhall.cluster.lifecycle.experiments import move_experiment
from trainhall.cluster.lifecycle.jobs import reason_columns, set_reason
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, experiment_label
from trainhall.cluster.lifecycle.states import ExperimentState, JobState, TrialState
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Job, JobProgress

log = structlog.get_logger(__name__)

_ENDS = {
    JobState.COMPLETED: TrialState.COMPLETED,
    JobState.FAILED: TrialState.FAILED,
    JobState.CANCELLED: TrialState.CANCELLED,
}
_SHARES = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}
"""Parts of the trials that are promoted, by `factor`."""
_WITH_RESULT = (TrialState.COMPLETED.value, TrialState.WAITING.value, TrialState.STOPPED.value)


@dataclass(frozen=True)
class Measured:
    """The objective of a run whose job takes no more steps for now."""

    recorded: int
    """Rungs at which its result was recorded before."""
    results: tuple[float | None, ...] = ()
    """At the rungs that follow."""
    objective: float | None = None
    """At its end; null if it did not complete."""


async def measure(database: Database, facts: ExperimentFacts, step: Step) -> dict[RunKey, Measured]:
    """Read the objectives of the runs that have ended or are at a rung."""
    if not step.ended and not step.at_rung:
        return {}
    async with database.session() as session:
        experiment = await session.get_one(Experiment, facts.id)
    rungs = facts.early_stopping.rungs if facts.early_stopping is not None else ()
    return {
        run.key: await _measure(database, experiment, run, rungs)
        for run in (*step.ended, *step.at_rung)
    }


async def _measure(
    database: Database, experiment: Experiment, run: StartedRun, rungs: Sequence[int]
) -> Measured:
    if run.job_id is None:
        return Measured(run.rungs_reached)
    results = [
        await read_objective(database, run.job_id, experiment, at) for at in _passed(run, rungs)
    ]
    if run.job_state is not JobState.COMPLETED:
        return Measured(run.rungs_reached, tuple(results))
    end = await read_objective(database, run.job_id, experiment)
    results += [end] if rungs else []
    return Measured(run.rungs_reached, tuple(results), end)


def _passed(run: StartedRun, rungs: Sequence[int]) -> Sequence[int]:
    """Return the rungs below the end that a run has passed and has no result of."""
    left = rungs[run.rungs_reached : -1]
    if run.job_state is JobState.COMPLETED:
        return left
    if run.job_state is not JobState.PAUSED:
        return ()
    passed = [at for at in left if at <= run.step]
    # The step of a script may be that of an epoch, below the rung at which it paused. One that is
    # a rung is exact: a job that was restored pauses there again.
    counts_otherwise = run.paused_by_itself and run.step not in rungs
    return left[:1] if counts_otherwise and not passed else passed


def log_committed(session: AsyncSession, event: str, **fields: Any) -> None:
    """Log an event once the session's transaction has committed."""
    listen(session.sync_session, "after_commit", lambda _: log.info(event, **fields), once=True)


def log_trial(session: AsyncSession, event: str, trial: Trial, **fields: Any) -> None:
    """Log an event of a run, once the session's transaction has committed."""
    log_committed(
        session, event, experiment=trial.experiment_id, trial=trial.number, repeat=trial.repeat,
        job=trial.job_id, **fields,
    )  # fmt: skip


async def record_end(
    session: AsyncSession, experiment: Experiment, trial: Trial, run: StartedRun, end: Measured
) -> None:
    trial.command = None
    if trial.state == TrialState.STOPPED:
        return  # its job ended before it got the command
    job = await session.get(Job, run.job_id) if run.job_id is not None else None
    if job is None or run.job_state is None:
        trial.state = TrialState.FAILED
        trial.objective = None
        set_reason(trial, Reason.of(ReasonCode.JOB_DELETED))
        return
    trial.state = _ENDS[run.job_state]
    trial.objective = end.objective
    trial.results = [*trial.results, *end.results]
    trial.reason, trial.reason_code = job.reason, job.reason_code
    if end.objective is None and run.job_state is JobState.COMPLETED:
        await _explain_missing(session, experiment, trial)
    log_trial(session, "trial_ended", trial, state=trial.state, objective=end.objective)


async def record_rung(
    session: AsyncSession, experiment: Experiment, trial: Trial, at_rung: Measured
) -> None:
    """Record the result of a run that now waits; without one if its job paused there before."""
    trial.state = TrialState.WAITING
    # Its job stays paused when a paused experiment is resumed.
    trial.paused = False
    if at_rung.results:
        trial.results = [*trial.results, *at_rung.results]
        trial.objective = at_rung.results[-1]
        if trial.objective is None:
            await _explain_missing(session, experiment, trial)
    await _explain_wait(session, experiment, trial)
    rung, objective = len(trial.results), trial.objective
    log_trial(session, "trial_at_rung", trial, rung=rung, objective=objective)


async def _explain_wait(session: AsyncSession, experiment: Experiment, trial: Trial) -> None:
    """Let a job say what it waits for, unless somebody paused it."""
    asha = AshaSpec.model_validate(experiment.spec["early_stopping"]["asha"])
    reason = Reason.of(
        ReasonCode.WAITS_AT_RUNG,
        step=asha.rungs[max(len(trial.results), 1) - 1],
        experiment=experiment_label(experiment.id, experiment.name),
        share=_SHARES.get(asha.factor, f"1/{asha.factor}"),
    )
    await session.execute(
        update(Job)
        .where(
            Job.id == trial.job_id,
            Job.state == JobState.PAUSED.value,
            Job.reason_code == ReasonCode.PAUSED_AT_RUNG.value,
        )
        .values(**reason_columns(reason))
    )


def record_stop(
    session: AsyncSession,
    experiment: Experiment,
    trial: Trial,
    stopped: StoppedTrial,
    rungs: Sequence[int],
) -> None:
    """Stop a run that waits; its job, if it has one, is to be cancelled."""
    rung = len(trial.results)
    when = f"at step {rungs[rung - 1]:,}" if rung else "before its start"
    compared = "trials" if experiment.spec.get("repeats", 1) > 1 else "runs"
    why = _why_stopped(stopped.why, experiment.metric, compared)
    trial.command = "cancel" if trial.state == TrialState.WAITING else None
    trial.state = TrialState.STOPPED
    set_reason(trial, Reason.of(ReasonCode.STOPPED_EARLY, when=when, why=why))
    log_trial(session, "trial_stopped", trial, rung=rung)


def _why_stopped(why: Stop | TrialState, metric: str, compared: str) -> str:
    if isinstance(why, TrialState):
        how = "was cancelled" if why is TrialState.CANCELLED else "has failed"
        return f"another repeat of its trial {how}"
    if not why.has_value:
        return f"it has no finite value of {metric}"
    were = "was" if why.better == 1 else "were"
    text = f"{why.better} of {why.compared} {compared} {were} better"
    if why.better >= why.places:
        return text
    # The paper's rule would promote it: earlier promotions took the places.
    taken = "the only promotion" if why.places == 1 else f"all {why.places} promotions"
    are = "is" if why.places == 1 else "are"
    return f"{text}, but {taken} from this rung {are} taken"


async def _explain_missing(session: AsyncSession, experiment: Experiment, trial: Trial) -> None:
    """Say on the trial and on its experiment why a run has no objective; pause the experiment if
    its first result does not have the metric: the others would run for nothing."""
    progress = await session.get(JobProgress, trial.job_id)
    reported = progress.metrics if progress is not None else {}
    why = missing_objective(experiment.metric, reported)
    if trial.state == TrialState.COMPLETED:
        set_reason(trial, Reason.of(ReasonCode.NO_OBJECTIVE, why=why))
    if experiment.state != ExperimentState.RUNNING:
        return
    run = run_name(trial.number, trial.repeat, experiment.spec.get("repeats", 1))
    is_unknown = experiment.metric not in reported and await _is_first_result(session, trial)
    if is_unknown and (await running_reason(session, experiment)).code is ReasonCode.TRIALS_RUN:
        reason = Reason.of(ReasonCode.PAUSED_UNRATED, run=run, why=why)
        move_experiment(experiment, ExperimentState.PAUSED, reason)
    else:
        set_reason(experiment, Reason.of(ReasonCode.TRIAL_NOT_RATED, run=run, why=why))


async def _is_first_result(session: AsyncSession, trial: Trial) -> bool:
    """Return whether no other run has completed or reached a rung."""
    others = select(Trial.number).where(
        Trial.experiment_id == trial.experiment_id,
        or_(Trial.number != trial.number, Trial.repeat != trial.repeat),
        or_(Trial.state.in_(_WITH_RESULT), Trial.objective.is_not(None)),
    )
    return (await session.execute(others.limit(1))).first() is None
