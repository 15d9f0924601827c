"""Plain rows that an analysis works on: runs, and the trials that they belong to."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from trainhall.cluster.experiments.means import mean_at_rung, mean_of_repeats
from trainhall.cluster.jobs.plans import JobPlan
from trainhall.training.spec.recovery import MetricMode

FIGURES = (
    "samples_per_second",
    "step_seconds",
    "peak_memory_bytes",
    "steps",
    "duration_seconds",
)
"""Measured beside the objective."""
ENDED = frozenset({"completed", "stopped", "failed", "cancelled"})


@dataclass(frozen=True)
class RunRow:
    """One run of an experiment."""

    trial: int
    repeat: int
    values: Mapping[str, Any]
    state: str
    """`pending`, or the state of its job."""
    job_id: str | None = None
    reason: str = ""
    objective: float | None = None
    """Value that rates it; None until it has completed."""
    results: Sequence[float | None] = ()
    """Objective at each rung of early stopping that it has reached."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """By the names in `FIGURES`; None: not measured."""
    device_seconds: float = 0.0
    can_run: bool = True
    """False: of a combination that a benchmark or scaling study cannot run."""
    shared_with: tuple[str, ...] = ()
    """Other jobs that ran on its hosts meanwhile; only known where speeds are compared, as all that
    follow."""
    shares_cores: bool = False
    """A host ran more ranks of its job than it has cores or devices."""
    interruptions: tuple[str, ...] = ()
    """Reasons for which its ranks ended or changed before its job had ended."""
    measured_attempts: tuple[int, ...] = ()
    """Numbers of the attempts that its figures are of."""
    plan: JobPlan | None = None
    """Plan that its job ran with."""


@dataclass(frozen=True)
class TrialRow:
    """One configuration, over all its repeats."""

    trial: int
    values: Mapping[str, Any]
    state: str
    reason: str
    runs: tuple[RunRow, ...]
    objectives: tuple[float, ...]
    """Ascending; those of runs that have one."""
    objective: float | None
    """Mean over the repeats; None until every repeat has a value."""
    at_rung: tuple[int, float] | None
    """Rungs of early stopping that all of its runs have reached, and the mean of their results at
    the last one; None: it reached none, has an objective, or a run failed."""
    figures: Mapping[str, float | None]
    """Means over the runs in which they were measured."""
    spread: Mapping[str, tuple[float, float]]
    """By name of a figure, or `objective`, the lowest and the highest of two or more runs."""


@dataclass(frozen=True)
class ExperimentRow:
    """The experiment, as far as its analysis depends on it."""

    id: str
    name: str
    state: str
    is_finished: bool
    metric: str
    goal: MetricMode
    space: Mapping[str, Any]
    """Dimensions as they were given, by field."""
    rungs: Sequence[int] = ()
    """Steps of the rungs of early stopping, the last of which are those of a run in full."""
    kind: str = "sweep"

    @property
    def sign(self) -> int:
        """Factor that makes lower values of the objective the better ones."""
        return 1 if self.goal is MetricMode.MIN else -1


def trial_rows(runs: Iterable[RunRow], figures: Sequence[str] = FIGURES) -> list[TrialRow]:
    """Return the trials of runs, in the order of their numbers.

    Args:
        figures: names of those to sum up.
    """
    ordered = sorted(runs, key=lambda run: (run.trial, run.repeat))
    groups = groupby(ordered, key=lambda run: run.trial)
    return [_trial(tuple(group), figures) for _, group in groups]


def rated(trials: Iterable[TrialRow], sign: int) -> list[TrialRow]:
    """Return the trials with an objective, the best first; of equal ones the first that started."""
    with_value = [(sign * t.objective, t.trial, t) for t in trials if t.objective is not None]
    return [trial for *_, trial in sorted(with_value, key=lambda each: each[:2])]


def ranked_by_progress(trials: Iterable[TrialRow], sign: int) -> list[tuple[TrialRow, int]]:
    """Return the trials with an objective or a result at a rung, each with its rank from 0.

    A trial that was stopped early ranks below those that went further, as in successive halving.
    """
    keys = [(key, trial) for trial in trials if (key := _progress(trial, sign)) is not None]
    places = {key: place for place, key in enumerate(sorted({key for key, _ in keys}))}
    ranked = [(trial, places[key]) for key, trial in keys]
    return sorted(ranked, key=lambda each: (each[1], each[0].trial))


def _progress(trial: TrialRow, sign: int) -> tuple[float, float] | None:
    if trial.objective is not None:
        return -math.inf, sign * trial.objective
    if trial.state != "stopped" or trial.at_rung is None:
        return None
    rung, value = trial.at_rung
    return -rung, sign * value


def known(runs: Iterable[RunRow], figure: str) -> list[float]:
    """Return a figure of the runs in which it was measured."""
    return [value for run in runs if (value := run.figures.get(figure)) is not None]


def field_labels(fields: Iterable[str]) -> dict[str, str]:
    """Return short names of fields: the last part of each, where no two are the same."""
    names = list(fields)
    ends = Counter(name.rpartition(".")[2] for name in names)
    return {name: end if ends[end := name.rpartition(".")[2]] == 1 else name for name in names}


def _deleted(runs: Sequence[RunRow]) -> str:
    """Say that a completed run has no figures, since its job was deleted."""
    return next((run.reason for run in runs if run.job_id is None), "")


def _trial(runs: tuple[RunRow, ...], figures: Sequence[str]) -> TrialRow:
    objectives = sorted(run.objective for run in runs if run.objective is not None)
    state = _state(runs)
    explains = next((run for run in runs if run.state == state), runs[0])
    measured = {name: known(runs, name) for name in figures}
    spread = {
        name: (min(values), max(values))
        for name, values in {"objective": objectives, **measured}.items()
        if len(values) > 1
    }
    objective = mean_of_repeats(objectives) if len(objectives) == len(runs) else None
    return TrialRow(
        trial=runs[0].trial,
        values=runs[0].values,
        state=state,
        reason=explains.reason if state != "completed" else _deleted(runs),
        runs=runs,
        objectives=tuple(objectives),
        objective=objective,
        at_rung=_at_rung(runs) if objective is None else None,
        figures={
            name: mean_of_repeats(values) if values else None for name, values in measured.items()
        },
        spread=spread,
    )


def _at_rung(runs: Sequence[RunRow]) -> tuple[int, float] | None:
    # One that failed has no value that rates it, one that completed only that of its end.
    states = {run.state for run in runs}
    if states & {"failed", "cancelled"} or states == {"completed"}:
        return None
    return mean_at_rung(run.results for run in runs)


def _state(runs: Sequence[RunRow]) -> str:
    """Return the state of a run that has not ended, else the worst end."""
    unfinished = [run.state for run in runs if run.state not in ENDED]
    started = [state for state in unfinished if state != "pending"]
    if unfinished:
        return (started or unfinished)[0]
    ends = {run.state for run in runs}
    return next(state for state in ("failed", "cancelled", "stopped", "completed") if state in ends)
