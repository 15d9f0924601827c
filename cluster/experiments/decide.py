"""Next step of an experiment: a pure function of its state and that of its jobs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainhall.cluster.experiments import asha
from trainhall.cluster.experiments.asha import RungRun, RungTrial, RunKey, Status
from trainhall.cluster.lifecycle.states import (
    FINAL_STATES,
    ExperimentState,
    JobState,
    TrialState,
)

AT_ONCE = 25
"""Most runs that one transaction ends or starts."""
COMMANDS_AT_ONCE = 25
"""Most jobs that one pass commands, in a transaction each: the rest of the cluster waits for it."""

PROMOTE = "promote"
"""Command for a job that waits at a rung: it is resumed."""


@dataclass(frozen=True)
class StartedRun:
    """A run whose job was submitted and that is not recorded as ended."""

    key: RunKey
    job_id: str | None
    """None: the job was deleted."""
    job_state: JobState | None
    command: str | None
    """Command that its job still has to get: pause, resume, cancel or `PROMOTE`."""
    state: TrialState = TrialState.STARTED
    """Stopped: only until its job has got the command."""
    step: int = 0
    """Finished steps of its job, or the step at which it paused by itself."""
    paused_by_itself: bool = False
    """Its job is paused as `training.pause_at` says."""
    rungs_reached: int = 0
    """Rungs at which its result is recorded."""

    @property
    def has_ended(self) -> bool:
        return self.job_state is None or self.job_state in FINAL_STATES

    @property
    def holds_place(self) -> bool:
        """Return whether it counts against `parallel`."""
        return self.state is TrialState.STARTED and not self.has_ended


@dataclass(frozen=True)
class EarlyStopping:
    """The state that runs are promoted and stopped from."""

    rungs: tuple[int, ...]
    """Steps; the last one is the end of a run."""
    factor: int
    lower_is_better: bool
    runs: tuple[RungRun, ...] = ()
    """All runs, ended and pending ones as well; left out while none may be promoted, and by
    `load_unfinished`."""

    def trials(self, runs: Iterable[RungRun]) -> list[RungTrial]:
        return asha.trials_of(runs, lower_is_better=self.lower_is_better)


@dataclass(frozen=True)
class ExperimentFacts:
    id: str
    state: ExperimentState
    parallel: int
    started: tuple[StartedRun, ...]
    """Runs from which a step may follow: not the ones that only run, or only wait at a rung."""
    pending: tuple[RunKey, ...]
    """The first runs that are not started, in their order; left out while none may start."""
    early_stopping: EarlyStopping | None = None
    undecided: int = 0
    """Trials whose values are still to be chosen, each when a place is free."""
    running: int = 0
    """Other runs that hold a place."""
    waiting: int = 0
    """Other runs that wait at a rung."""

    @property
    def free(self) -> int:
        """Return how many places of `parallel` no run holds."""
        return self.parallel - self.running - sum(run.holds_place for run in self.started)

    @property
    def learns(self) -> bool:
        """Return whether its next runs depend on the results of others."""
        return self.early_stopping is not None or self.undecided > 0

    @property
    def has_results(self) -> bool:
        """Return whether the results of its trials are loaded."""
        return self.early_stopping is not None and bool(self.early_stopping.runs)

    @property
    def compares(self) -> bool:
        """Return whether its runs may be promoted or stopped."""
        stops_early = self.early_stopping is not None
        return stops_early and self.free > 0 and self.state is ExperimentState.RUNNING


def without_results(facts: ExperimentFacts) -> ExperimentFacts:
    """Return the facts as `load_unfinished` loads them."""
    if facts.early_stopping is None:
        return facts
    return replace(facts, early_stopping=replace(facts.early_stopping, runs=()))


@dataclass(frozen=True)
class StoppedTrial:
    """Runs of a trial that wait at a rung, or to be started, and are to be stopped there."""

    runs: tuple[RunKey, ...]
    why: asha.Stop | TrialState
    """Comparison at its last rung, or the state in which another run of the trial has ended."""


@dataclass(frozen=True)
class Step:
    ended: tuple[StartedRun, ...] = ()
    """To be recorded as ended."""
    at_rung: tuple[StartedRun, ...] = ()
    """Their results are to be recorded, and they wait for a promotion."""
    taken_up: tuple[StartedRun, ...] = ()
    """A user resumed their jobs while they waited."""
    commands: tuple[StartedRun, ...] = ()
    """Their jobs are to get the command."""
    start: tuple[RunKey, ...] = ()
    promote: tuple[RunKey, ...] = ()
    """They no longer wait: their jobs are to be resumed."""
    stop: tuple[StoppedTrial, ...] = ()
    choose: bool = False
    """The values of another trial are to be chosen."""
    finishes: bool = False
    """Once the others of this step are done, no run is left."""

    @property
    def changes_trials(self) -> bool:
        """Return whether it changes more than jobs."""
        return replace(self, commands=(), choose=False) != Step()

    def __bool__(self) -> bool:
        return self != Step()


def next_step(facts: ExperimentFacts) -> Step:
    """Decide the next step of an unfinished experiment; a false one if it only waits."""
    step = _follow_jobs(facts)
    if facts.state is not ExperimentState.RUNNING:
        return step
    if facts.learns and (step.ended or step.at_rung or step.taken_up):
        return step  # the next one knows their results
    return _fill_places(facts, step)


def _follow_jobs(facts: ExperimentFacts) -> Step:
    """Return what follows from the states of its jobs alone."""
    started = facts.started
    ended = tuple(run for run in started if run.has_ended)[:AT_ONCE]
    return Step(
        ended=ended,
        at_rung=tuple(run for run in started if _is_at_rung(run, facts.early_stopping))[:AT_ONCE],
        taken_up=tuple(run for run in started if _is_taken_up(run))[:AT_ONCE],
        commands=tuple(run for run in started if _is_due(run))[:COMMANDS_AT_ONCE],
        finishes=len(ended) == len(started)
        and not (facts.running or facts.waiting or facts.pending or facts.undecided),
    )


def _fill_places(facts: ExperimentFacts, step: Step) -> Step:
    """Give free places to promoted runs, then to pending ones, then to a trial to be chosen."""
    free = max(0, min(facts.free, AT_ONCE))
    if facts.early_stopping is not None:
        step = _compare(facts.early_stopping, facts.undecided, free, step)
    stopped = {key for trial in step.stop for key in trial.runs}
    pending = tuple(key for key in facts.pending if key not in stopped)
    start = pending[: free - len(step.promote)]
    choose = bool(facts.undecided) and len(step.promote) + len(start) < free
    return replace(step, start=start, stop=step.stop[:AT_ONCE], choose=choose)


def _is_due(run: StartedRun) -> bool:
    if run.has_ended:
        return False
    # A job that is still saving for a pause cannot be resumed before it has paused.
    return run.command is not None and (
        run.command != "resume" or run.job_state is not JobState.PAUSING
    )


def _is_at_rung(run: StartedRun, stopping: EarlyStopping | None) -> bool:
    """Return whether a job is paused where its result is due."""
    if stopping is None or run.command is not None or run.job_state is not JobState.PAUSED:
        return False
    if run.state is not TrialState.STARTED:
        return False
    # A pause by others may fall on a rung, too. A job that was restored pauses there again.
    left = stopping.rungs[run.rungs_reached : -1]
    return run.paused_by_itself or bool(left and run.step >= left[0])


def _is_taken_up(run: StartedRun) -> bool:
    waits = run.state is TrialState.WAITING and not run.has_ended
    return waits and run.job_state is not JobState.PAUSED


def _compare(stopping: EarlyStopping, undecided: int, free: int, step: Step) -> Step:
    """Give free places to the runs that are promoted; stop the trials that cannot be any more."""
    runs = {run.key: run for run in stopping.runs}
    promote: list[RunKey] = []
    while len(promote) < free and (keys := _next_promoted(stopping, undecided, runs.values())):
        for key in keys[: free - len(promote)]:
            promote.append(key)
            runs[key] = replace(runs[key], state=TrialState.STARTED)
    trials = {trial.number: trial for trial in stopping.trials(runs.values())}
    failed = {run.key[0]: run.state for run in stopping.runs if run.has_failed}
    hopeless = asha.stops(
        [*trials.values()],
        rungs=len(stopping.rungs), factor=stopping.factor, undecided=undecided,
    )  # fmt: skip
    stop = (
        *(StoppedTrial(w, state) for n, state in failed.items() if (w := trials[n].waiting)),
        *(StoppedTrial(trials[each.trial].waiting, each) for each in hopeless),
    )
    return replace(step, promote=tuple(promote), stop=stop)


def _next_promoted(
    stopping: EarlyStopping, undecided: int, runs: Iterable[RungRun]
) -> tuple[RunKey, ...]:
    """Return the runs of the trial to promote; first of one of which only some are promoted."""
    trials = stopping.trials(runs)
    for trial in trials:
        if trial.status is Status.RUNNING and trial.waiting:
            return trial.waiting
    number = asha.next_promotion(
        trials, rungs=len(stopping.rungs), factor=stopping.factor, undecided=undecided
    )
    return next((trial.waiting for trial in trials if trial.number == number), ())
