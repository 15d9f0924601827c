"""Importance of the varied fields for a good objective: PED-ANOVA, with uncertainty.

Shares have bootstrap intervals over trials. Whether a field has an effect at all is a permutation
test: its importance against the largest one of any field after the objectives were shuffled.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from trainhall.arrays import Floats, Ints, RandomGenerator, np
from trainhall.cluster.experiments.analysis.intervals import Interval
from trainhall.cluster.experiments.analysis.rows import TrialRow
from trainhall.cluster.experiments.analysis.text import count, is_number

MIN_TRIALS = 10
MAX_FIELDS = 6
"""The most important ones: each costs time."""
MIN_TOP = 5
"""Fewest trials that count as the good ones; with more trials a tenth of them."""
_SEED = 0
_REPETITIONS = (20, 100)
"""Fewest and most, both of resamples and of permutations."""
_SECONDS = 0.4
_SECONDS_PER_FIELD, _SECONDS_PER_VALUE = 3e-3, 9e-6
"""Measured on a core of 2020; they set the number of repetitions, which is the same everywhere."""
_TAILS = (0.025, 0.975)
_SIGNIFICANT = 0.05


class Scale(Enum):
    """Kind of the values of a field."""

    LINEAR = auto()
    LOG = auto()
    ORDER = auto()
    """Numbers of a list, by their positions."""
    CHOICE = auto()
    """Values without an order."""


@dataclass(frozen=True)
class Axis:
    """A field and its values, one for each trial: numbers, or positions for `ORDER`, `CHOICE`."""

    field: str
    scale: Scale
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class FieldShare:
    field: str
    share: float
    """Part of the importance of all fields, from 0 to 1."""
    interval: Interval
    has_effect: bool
    """More than chance would give to any field in 19 of 20 cases."""


@dataclass(frozen=True)
class Importances:
    fields: tuple[FieldShare, ...] = ()
    """The most important first."""
    note: str = ""
    """Reason why there are none, or what is left out; else empty."""


Evaluate = Callable[[Sequence[Axis], Ints, float], Floats]
"""Return the importance of each axis, by the ranks of the trials (0: best) and the share of trials
that count as good."""


def importances(
    space: Mapping[str, Any], ranked: Sequence[tuple[TrialRow, int]], evaluate: Evaluate
) -> Importances:
    """Rate the fields of a space.

    Args:
        ranked: trials and their ranks, the best first; equal objectives have the same rank.
    """
    if len(ranked) < MIN_TRIALS:
        note = (
            f"Which field matters is not estimated: {count(len(ranked), 'trial')} of the "
            f"{MIN_TRIALS} that it needs {'has' if len(ranked) == 1 else 'have'} a value."
        )
        return Importances(note=note)
    ranks = np.array([rank for _, rank in ranked], np.int64)
    top = max(0.1, MIN_TOP / len(ranked))
    if not _separates(ranks, top):
        note = "Which field matters is not estimated: most trials have the same value."
        return Importances(note=note)
    trials = [trial for trial, _ in ranked]
    axes = [axis for field in space if (axis := _axis(field, space[field], trials)) is not None]
    if not axes:
        return Importances(note="No field has different values in the trials that have a value.")
    kept, note = _most_important(axes, ranks, top, evaluate)
    repetitions = _repetitions(len(kept), len(ranked))
    random = np.random.default_rng(_SEED)
    measured = evaluate(kept, ranks, top)
    resampled = _resampled(kept, ranks, top, evaluate, random, repetitions)
    chance = [evaluate(kept, random.permutation(ranks), top).max() for _ in range(repetitions)]
    shares = _shares(measured)
    fields = []
    for i, axis in enumerate(kept):
        exceeding = sum(value >= measured[i] for value in chance)
        has_effect = (1 + exceeding) / (1 + repetitions) <= _SIGNIFICANT
        low, high = np.quantile(resampled[:, i], _TAILS) if len(resampled) else (0.0, 1.0)
        interval = min(float(low), shares[i]), max(float(high), shares[i])
        fields.append(FieldShare(axis.field, shares[i], interval, has_effect))
    return Importances(tuple(sorted(fields, key=lambda f: -f.share)), note)


def _separates(ranks: Ints, top: float) -> bool:
    """Return whether the good trials, and those as good as them, are not nearly all."""
    cutoff = np.sort(ranks)[math.ceil(top * len(ranks)) - 1]
    return bool((ranks > cutoff).sum() >= 2)


def _most_important(
    axes: list[Axis], ranks: Ints, top: float, evaluate: Evaluate
) -> tuple[list[Axis], str]:
    if len(axes) <= MAX_FIELDS:
        return axes, ""
    found = evaluate(axes, ranks, top)
    order = np.argsort(-found, kind="stable")[:MAX_FIELDS]
    left = len(axes) - MAX_FIELDS
    return [axes[i] for i in order], f"{count(left, 'less important field')} left out."


def _resampled(
    axes: Sequence[Axis],
    ranks: Ints,
    top: float,
    evaluate: Evaluate,
    random: RandomGenerator,
    repetitions: int,
) -> Floats:
    rows = []
    for _ in range(repetitions):
        drawn = np.sort(random.integers(0, len(ranks), len(ranks)))
        if _separates(ranks[drawn], top):
            picked = [
                Axis(a.field, a.scale, a.low, a.high, tuple(a.values[i] for i in drawn))
                for a in axes
            ]
            rows.append(_shares(evaluate(picked, ranks[drawn], top)))
    return np.array(rows)


def _shares(found: Floats) -> list[float]:
    total = float(found.sum())
    return [float(value) / total if total > 0 else 1 / len(found) for value in found]


def _repetitions(fields: int, trials: int) -> int:
    fewest, most = _REPETITIONS
    once = fields * (_SECONDS_PER_FIELD + _SECONDS_PER_VALUE * trials)
    return max(fewest, min(most, int(_SECONDS / once)))


def _axis(field: str, dimension: Any, trials: Sequence[TrialRow]) -> Axis | None:
    """Return the values of a field; None if all are the same."""
    values: list[Any] = [trial.values.get(field) for trial in trials]
    if len(set(map(repr, values))) < 2:
        return None
    is_numeric = all(map(is_number, values))
    if isinstance(dimension, dict) and "step" not in dimension and is_numeric:
        scale = Scale.LOG if "log" in dimension else Scale.LINEAR
        low, high = dimension["log" if "log" in dimension else "range"]
        return Axis(field, scale, low, high, tuple(map(float, values)))
    if is_numeric and len(set(map(float, values))) > 2:
        known: list[Any] = sorted(set(map(float, values)))
        places = tuple(float(known.index(float(value))) for value in values)
        return Axis(field, Scale.ORDER, 0, len(known) - 1, places)
    names = sorted(set(map(repr, values)))
    places = tuple(float(names.index(repr(value))) for value in values)
    return Axis(field, Scale.CHOICE, 0, len(names) - 1, places)
