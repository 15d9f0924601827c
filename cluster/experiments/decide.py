"""Next step of an experiment: a pure function of its state and that of its jobs."""

from dataclasses import dataclass

from trainhall.cluster.lifecycle.states import FINAL_STATES, ExperimentState, JobState

RunKey = tuple[int, int]
"""Number of the trial and of the repeat."""
AT_ONCE = 25
"""Most runs that one transaction ends or starts."""
COMMANDS_AT_ONCE = 100
"""Most jobs that a step commands, in a transaction each: the rest of the cluster waits for it."""


@dataclass(frozen=True)
class StartedRun:
    """A run whose job was submitted and that is not recorded as ended."""

    key: RunKey
    job_id: str | None
    """None: the job was deleted."""
    job_state: JobState | None
    command: str | None
    """Command that its job still has to get: pause, resume or cancel."""

    @property
    def has_ended(self) -> bool:
        return self.job_state is None or self.job_state in FINAL_STATES


@dataclass(frozen=True)
class ExperimentFacts:
    id: str
    state: ExperimentState
    parallel: int
    started: tuple[StartedRun, ...]
    pending: tuple[RunKey, ...]
    """The first runs that are not started, in their order; left out while none may start."""


@dataclass(frozen=True)
class Step:
    ended: tuple[StartedRun, ...] = ()
    """To be recorded as ended."""
    commands: tuple[StartedRun, ...] = ()
    """Their jobs are to get the command."""
    start: tuple[RunKey, ...] = ()
    finishes: bool = False
    """Once the others of this step are done, no run is left."""

    def __bool__(self) -> bool:
        return bool(self.ended or self.commands or self.start or self.finishes)


def next_step(facts: ExperimentFacts) -> Step:
    """Decide the next step of an unfinished experiment; a false one if it only waits."""
    ended = tuple(run for run in facts.started if run.has_ended)[:AT_ONCE]
    left = len(facts.started) - len(ended)
    start: tuple[RunKey, ...] = ()
    if facts.state is ExperimentState.RUNNING:
        start = facts.pending[: max(0, min(facts.parallel - left, AT_ONCE))]
    return Step(
        ended=ended,
        commands=tuple(run for run in facts.started if _is_due(run))[:COMMANDS_AT_ONCE],
        start=start,
        finishes=not left and not facts.pending,
    )


def _is_due(run: StartedRun) -> bool:
    if run.has_ended:
        return False
    # A job that is still saving for a pause cannot be resumed before it has paused.
    return run.command is not None and (
        run.command != "resume" or run.job_state is not JobState.PAUSING
    )
