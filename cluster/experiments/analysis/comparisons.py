"""The best trial against others, with no more certainty than the repeats allow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainhall.cluster.experiments.analysis.intervals import (
    LEVEL_PERCENT,
    Interval,
    bounds_of,
    difference_interval,
)
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, TrialRow, field_labels
from trainhall.cluster.experiments.analysis.text import is_number, value_text
from trainhall.training.common.units import figure

MIN_REPEATS = 3
"""Fewer repeats show no difference: two values agree by chance too often."""
ONE_RUN = f"with 1 repeat no spread is known: set repeats: {MIN_REPEATS}"
TOO_FEW = f"too few to show a difference: set repeats: {MIN_REPEATS}"
_MOST = 40
"""Most comparisons of one analysis."""


class Verdict(StrEnum):
    """Result of a comparison: is a trial shown to be better?"""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference"
    TOO_FEW_RUNS = "too_few_runs"


@dataclass(frozen=True)
class TrialComparison:
    """The best trial and another one."""

    best: TrialRow
    other: TrialRow
    field: str | None
    """The other one is the best with its value of this field; None: it is the runner-up."""
    difference: float
    """Objective of the best minus that of the other one."""
    interval: Interval | None
    verdict: Verdict
    text: str


def compare(experiment: ExperimentRow, ranked: Sequence[TrialRow]) -> list[TrialComparison]:
    """Compare the best trial with the runner-up, and with the best trial of each other value of the
    fields that are not numeric.

    Args:
        ranked: trials that have an objective, the best first.
    """
    if len(ranked) < 2:
        return []
    best = ranked[0]
    labels = field_labels(experiment.space)
    found = [_comparison(experiment, best, ranked[1], None, "the runner-up")]
    for field, other in _rivals(experiment.space, ranked):
        what = f"the best with {labels[field]} {value_text(other.values[field])}"
        found.append(_comparison(experiment, best, other, field, what))
        if len(found) == _MOST:
            break
    return found


def is_categorical(dimension: Any) -> bool:
    """Return whether a dimension lists values of which one is not a number."""
    return isinstance(dimension, list) and not all(map(is_number, dimension))


def _rivals(space: Mapping[str, Any], ranked: Sequence[TrialRow]) -> Iterator[tuple[str, TrialRow]]:
    for field, dimension in space.items():
        if not is_categorical(dimension):
            continue
        seen = {repr(ranked[0].values.get(field))}
        for trial in ranked[1:]:
            if field in trial.values and (value := repr(trial.values[field])) not in seen:
                seen.add(value)
                yield field, trial


def _comparison(
    experiment: ExperimentRow, best: TrialRow, other: TrialRow, field: str | None, what: str
) -> TrialComparison:
    assert best.objective is not None
    assert other.objective is not None
    bounds = bounds_of(experiment.metric, [*best.objectives, *other.objectives])
    interval = difference_interval(best.objectives, other.objectives, bounds)
    repeats = min(len(best.objectives), len(other.objectives))
    verdict = _verdict(interval, repeats, experiment.sign)
    return TrialComparison(
        best=best,
        other=other,
        field=field,
        difference=best.objective - other.objective,
        interval=interval,
        verdict=verdict,
        text=f"{_values(experiment.metric, best, other, what)}: "
        f"{_ending(verdict, repeats, interval)}.",
    )


def _values(metric: str, best: TrialRow, other: TrialRow, what: str) -> str:
    assert best.objective is not None
    assert other.objective is not None
    value = figure(best.objective)
    if best.objective == other.objective:
        return f"Trials {best.trial} and {other.trial} ({what}) both have {metric} {value}"
    return (
        f"Trial {best.trial} has {metric} {value}, trial {other.trial} ({what}) "
        f"{figure(other.objective)}"
    )


def _verdict(interval: Interval | None, repeats: int, sign: int) -> Verdict:
    if interval is None or repeats < MIN_REPEATS:
        return Verdict.TOO_FEW_RUNS
    is_better = max(sign * end for end in interval) < 0
    return Verdict.BETTER if is_better else Verdict.NO_DIFFERENCE


def _ending(verdict: Verdict, repeats: int, interval: Interval | None) -> str:
    if interval is None:
        return ONE_RUN
    if verdict is Verdict.TOO_FEW_RUNS:
        return f"{repeats} runs each are {TOO_FEW}"
    low, high = map(figure, interval)
    shown = "better" if verdict is Verdict.BETTER else "no difference shown"
    return f"{shown} ({LEVEL_PERCENT} % interval of the difference {low} to {high})"
