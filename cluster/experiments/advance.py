"""The step of the coordinator's pass that starts trials, commands their jobs and records results.

Nothing else starts a trial. Its job is inserted in the transaction that marks it as started, under
the lock of the experiment, so that a coordinator that is killed starts none twice and loses none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.errors import ConflictError, NotFoundError, WrongStateError
from trainhall.cluster.experiments.analysis.text import listing
from trainhall.cluster.experiments.asha import RunKey
from trainhall.cluster.experiments.decide import (
    COMMANDS_AT_ONCE,
    PROMOTE,
    ExperimentFacts,
    StartedRun,
    Step,
    next_step,
    without_results,
)
from trainhall.cluster.experiments.load import load_experiment, running_reason
from trainhall.cluster.experiments.rating import best_trials, missing_objective
from trainhall.cluster.experiments.record import (
    Measured,
    log_committed,
    log_trial,
    measure,
    record_end,
    record_rung,
    record_stop,
)
from trainhall.cluster.experiments.runs import job_of, run_name
from trainhall.cluster.experiments.spec import ExperimentSpec, validate_experiment
from trainhall.cluster.experiments.tpe import Suggestions, load_past
from trainhall.cluster.jobs.commands import Command, give_command
from trainhall.cluster.jobs.submission import RunOf, add_job
from trainhall.cluster.lifecycle.experiments import move_experiment
from trainhall.cluster.lifecycle.jobs import set_reason
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, experiment_label
from trainhall.cluster.lifecycle.states import UNFINISHED_TRIALS, ExperimentState, TrialState
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.documents import Allocation
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import JobProgress
from trainhall.training.common.units import figure
from trainhall.training.spec import SpecError

log = structlog.get_logger(__name__)

_STEPS_AT_ONCE = 3
"""A result is recorded, a trial promoted or chosen by it, and its job resumed or submitted."""
_REASONS = {
    Command.PAUSE: ReasonCode.EXPERIMENT_PAUSED,
    Command.RESUME: ReasonCode.EXPERIMENT_RESUMED,
    Command.CANCEL: ReasonCode.EXPERIMENT_CANCELLED,
}


class ExperimentAdvancer(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._faults: dict[str, str] = {}
        """The last fault of each experiment that could not take its step."""
        self._compared: dict[str, ExperimentFacts] = {}
        """Facts of each experiment whose trials were compared, and nothing followed."""
        self._suggestions = Suggestions(lambda: self._notifier.notify_reconciler())
        self._commands_left = COMMANDS_AT_ONCE
        """Commands that the present call may still give."""

    async def wait(self) -> bool:
        """Wait until the values of no trial are being chosen; return whether some were."""
        return await self._suggestions.wait()

    async def stop(self) -> None:
        """Stop choosing values."""
        await self._suggestions.stop()

    async def advance(self, experiments: Sequence[ExperimentFacts]) -> bool:
        """Take the next step of every experiment; return whether there was one, or is one left.

        All together give at most `COMMANDS_AT_ONCE` commands. A fault in one holds up no other,
        and no job; the next pass tries again.
        """
        advanced = False
        self._commands_left = COMMANDS_AT_ONCE
        present = {facts.id for facts in experiments}
        self._suggestions.keep(present)
        for known in (self._faults, self._compared):
            for ended in known.keys() - present:
                del known[ended]
        for facts in experiments:
            try:
                advanced = await self._advance(facts) or advanced
                self._faults.pop(facts.id, None)
            except DBAPIError:
                raise  # the database is away
            except Exception as error:
                if self._faults.get(facts.id) != repr(error):
                    log.error("experiment_not_advanced", experiment=facts.id, exc_info=error)
                self._faults[facts.id] = repr(error)
        return advanced

    async def _advance(self, facts: ExperimentFacts) -> bool:
        """Take the next step, and those that follow from its results: a device waits for them, and
        each would take a pass over the whole cluster."""
        advanced = False
        for _ in range(_STEPS_AT_ONCE):
            step = await self._take_step(facts)
            advanced = advanced or bool(step)
            if not (facts.learns and (step.ended or step.at_rung or step.promote or step.choose)):
                break
            async with self._db.session() as session:
                current = await load_experiment(session, facts.id)
            if current is None:
                break
            facts = current
        return advanced

    async def _take_step(self, facts: ExperimentFacts) -> Step:
        step = next_step(facts)
        if step.changes_trials or self._is_to_compare(facts):
            step = await self._change_trials(facts, step)
        if facts.compares:
            if step.changes_trials:
                self._compared.pop(facts.id, None)
            else:
                self._compared[facts.id] = without_results(facts)
        if step.choose:
            step = replace(step, choose=await self._choose(facts.id))
        elif not (step.ended or step.at_rung or step.taken_up):
            self._suggestions.drop(facts.id)
        for run in step.commands[: self._commands_left]:
            self._commands_left -= 1
            await self._command(facts.id, run)
        return step

    def _is_to_compare(self, facts: ExperimentFacts) -> bool:
        """Return whether the results of its trials are to be read and compared."""
        if not facts.compares or facts.has_results:
            return False
        return self._compared.get(facts.id) != facts

    async def _change_trials(self, facts: ExperimentFacts, seen: Step) -> Step:
        """Record results and ends of runs, then start, promote and stop others.

        Args:
            seen: the step as of the last read; it is decided again under the lock.
        """
        measured = await measure(self._db, facts, seen)
        try:
            async with self._db.transaction() as session:
                experiment = await _lock(session, facts.id)
                current = await load_experiment(session, facts.id)
                if experiment is None or current is None:
                    return Step()
                step = next_step(current)
                recorded = await self._record(session, experiment, step, measured)
                if experiment.state != current.state:
                    step = replace(step, start=(), promote=(), stop=())  # it has paused itself
                await self._decide(session, experiment, current, step)
                started = await self._start(session, experiment, step.start)
                await session.flush()
                if (step.start or step.stop) and experiment.reason_code == ReasonCode.TRIALS_RUN:
                    set_reason(experiment, await running_reason(session, experiment))
                if step.finishes and recorded:
                    await self._finish(session, experiment)
        except IntegrityError:
            # Somebody else submitted a job at the same time and got its number.
            return seen
        for job_id in started:
            self._notifier.notify_viewers(job_id)
        return step

    async def _record(
        self,
        session: AsyncSession,
        experiment: Experiment,
        step: Step,
        measured: Mapping[RunKey, Measured],
    ) -> bool:
        """Record the runs that have ended or are at a rung; return whether these are all. One that
        came to it since is recorded by the next pass, which reads its objective."""
        complete = True
        for run in (*step.ended, *step.at_rung):
            trial, found = await _trial(session, experiment.id, run.key), measured.get(run.key)
            if found is None or found.recorded != run.rungs_reached:
                complete = False
            elif run.has_ended:
                await record_end(session, experiment, trial, run, found)
            else:
                await record_rung(session, experiment, trial, found)
        for run in step.taken_up:
            (await _trial(session, experiment.id, run.key)).state = TrialState.STARTED
        return complete

    async def _decide(
        self, session: AsyncSession, experiment: Experiment, facts: ExperimentFacts, step: Step
    ) -> None:
        """Record which runs are promoted or stopped; their jobs get the commands after that."""
        for key in step.promote:
            trial = await _trial(session, experiment.id, key)
            trial.state, trial.command, trial.paused = TrialState.STARTED, PROMOTE, True
            log_trial(session, "trial_promoted", trial, rung=len(trial.results))
        for stopped in step.stop:
            assert facts.early_stopping is not None
            for key in stopped.runs:
                trial = await _trial(session, experiment.id, key)
                record_stop(session, experiment, trial, stopped, facts.early_stopping.rungs)

    async def _choose(self, experiment_id: str) -> bool:
        """Choose the values of the next trial, which starts in the next step; return whether they
        are chosen. They take a while, and other steps do not wait for them."""
        if experiment_id not in self._suggestions:
            async with self._db.session() as session:
                experiment = await session.get_one(Experiment, experiment_id)
                past = await load_past(session, experiment)
            self._suggestions.begin(experiment_id, experiment.spec, past)
            return False
        suggestion = self._suggestions.take(experiment_id)
        if suggestion is None:
            return False
        number, values, refused = suggestion.number, suggestion.values, suggestion.refused
        async with self._db.transaction() as session:
            locked = await _lock(session, experiment_id)
            current = await load_experiment(session, experiment_id)
            # Another coordinator may have been first, or a user has paused the experiment.
            if locked is None or current is None or not next_step(current).choose:
                return False
            if await session.get(Trial, (experiment_id, number, 1)) is not None:
                return False
            repeats = locked.spec.get("repeats", 1)
            for repeat in range(1, repeats + 1):
                trial = Trial(
                    experiment_id=experiment_id, number=number, repeat=repeat,
                    position=(number - 1) * repeats + repeat, values=values,
                    state=(TrialState.FAILED if refused else TrialState.PENDING).value,
                )  # fmt: skip
                if refused is not None:
                    set_reason(trial, refused)
                session.add(trial)
        log.info("trial_chosen", experiment=experiment_id, trial=number, values=values)
        return True

    async def _start(
        self, session: AsyncSession, experiment: Experiment, keys: Sequence[RunKey]
    ) -> list[str]:
        """Submit the jobs of runs; return the ids. A run whose spec is refused fails."""
        started: list[str] = []
        spec: ExperimentSpec | None = None
        for key in keys:
            trial = await _trial(session, experiment.id, key)
            try:
                spec = spec or validate_experiment(experiment.spec)
                job_spec = job_of(spec, trial.values, *key)
            except SpecError as error:
                # It was valid when the experiment was created, by another version.
                trial.state = TrialState.FAILED
                set_reason(trial, Reason.of(ReasonCode.TRIAL_NOT_STARTED, why=error))
                continue
            label = experiment_label(experiment.id, experiment.name)
            run = run_name(*key, spec.repeats)
            reason = Reason.of(ReasonCode.TRIAL_STARTED, run=run, experiment=label)
            place = RunOf(experiment.id, *key)
            job = await add_job(
                session, self._ids.new(), job_spec, now=self._clock.now(), reason=reason, run=place
            )
            trial.state, trial.job_id = TrialState.STARTED, job.id
            started.append(job.id)
            log_trial(session, "trial_started", trial)
        return started

    async def _finish(self, session: AsyncSession, experiment: Experiment) -> None:
        states = await session.execute(
            select(
                Trial.state, func.count().label("runs"), func.count(Trial.objective).label("rated")
            )
            .where(Trial.experiment_id == experiment.id)
            .group_by(Trial.state)
        )
        counts, rated_runs = {}, 0
        for row in states:
            counts[row.state] = row.runs
            rated_runs += row.rated if row.state == TrialState.COMPLETED else 0
        if not counts.keys().isdisjoint((TrialState.PENDING, *UNFINISHED_TRIALS)):
            return  # a user commanded its job between the statements that read it
        experiment.finished_at = self._clock.now()
        if experiment.state == ExperimentState.CANCELLED:
            return
        completed = counts.get(TrialState.COMPLETED.value, 0)
        stopped = counts.get(TrialState.STOPPED.value, 0)
        rated = f"; {await _describe_best(session, experiment)}" if completed else ""
        end = ExperimentState.COMPLETED if rated_runs else ExperimentState.FAILED
        reason = Reason.of(
            ReasonCode.TRIALS_ENDED, completed=completed, total=sum(counts.values()),
            stopped=f", {stopped} stopped early" if stopped else "", rated=rated,
        )  # fmt: skip
        move_experiment(experiment, end, reason)
        log_committed(session, "experiment_ended", experiment=experiment.id, state=end.value)

    async def _command(self, experiment_id: str, run: StartedRun) -> None:
        """Give a job the command that it still has to get; after a conflict the next pass does."""
        hosts = Allocation()
        try:
            async with self._db.transaction() as session:
                experiment = await _lock(session, experiment_id)
                trial = await _trial(session, experiment_id, run.key)
                if experiment is None or trial.command != run.command or trial.job_id is None:
                    return
                hosts = await self._give(session, experiment, trial, self._clock.now())
        except ConflictError:
            return
        if run.job_id is not None:
            self._notifier.notify_viewers(run.job_id)
        self._notifier.notify_hosts(hosts)

    async def _give(
        self, session: AsyncSession, experiment: Experiment, trial: Trial, now: datetime
    ) -> Allocation:
        assert trial.job_id is not None
        assert trial.command is not None
        command = Command.RESUME if trial.command == PROMOTE else Command(trial.command)
        reason = _reason(experiment, trial, command)
        hosts, has_effect = Allocation(), False
        try:
            done = await give_command(
                session, trial.job_id, command, now=now, caller=SYSTEM, reason=reason
            )
            hosts, has_effect = done.hosts, done.has_effect
        except (WrongStateError, NotFoundError):
            # It has ended, or a user was first; either way nothing is left to do.
            pass
        # A job that a user had paused before stays paused when the experiment is resumed.
        trial.paused = command is Command.PAUSE and (has_effect or trial.paused)
        trial.command = None
        return hosts


def _reason(experiment: Experiment, trial: Trial, command: Command) -> Reason:
    label = experiment_label(experiment.id, experiment.name)
    if trial.state == TrialState.STOPPED:
        return Reason.stored(trial.reason_code, trial.reason)
    if trial.command == PROMOTE:
        return Reason.of(ReasonCode.PROMOTED, rung=len(trial.results), experiment=label)
    return Reason.of(_REASONS[command], experiment=label, user=experiment.asked_by)


async def _describe_best(session: AsyncSession, experiment: Experiment) -> str:
    """Describe the best trial; without one, why there is none."""
    best = (await best_trials(session, [experiment])).get(experiment.id)
    if best is not None:
        value = f"{experiment.metric} {figure(best.value)}"
        if best.ties:
            trials = listing([str(number) for number in (best.trial, *best.ties)])
            return f"trials {trials} share the best value, {value}"
        return f"best is trial {best.trial} with {value}"
    repeats = experiment.spec.get("repeats", 1)
    text = f"no trial has a value of {experiment.metric}"
    text += " for every repeat" if repeats > 1 else ""
    found = await session.execute(
        select(Trial.number, Trial.repeat, JobProgress.metrics)
        .join(JobProgress, JobProgress.job_id == Trial.job_id)
        .where(
            Trial.experiment_id == experiment.id,
            Trial.state == TrialState.COMPLETED.value,
            Trial.objective.is_(None),
        )
        .order_by(Trial.number, Trial.repeat)
        .limit(1)
    )
    if (unrated := found.one_or_none()) is None:
        return text
    run = run_name(unrated.number, unrated.repeat, repeats)
    return f"{text}; {run}: {missing_objective(experiment.metric, unrated.metrics)}"


async def _lock(session: AsyncSession, experiment_id: str) -> Experiment | None:
    return await session.get(Experiment, experiment_id, with_for_update=True)


async def _trial(session: AsyncSession, experiment_id: str, key: RunKey) -> Trial:
    trial = await session.get(Trial, (experiment_id, *key), populate_existing=True)
    assert trial is not None
    return trial
