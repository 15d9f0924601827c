"""Model of the time of a step by the number of workers, fitted to the measured parts of a step.

    compute, data   c + d · samples of a worker
    communication   α · rounds + β · volume, in the units of `costs`

Communication that computing hides today is taken to stay hidden, and links beyond the measured
points to be like those within. Where one point alone communicates, all of it counts as bandwidth.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainhall.cluster.experiments.analysis.intervals import Interval, mean_interval
from trainhall.cluster.experiments.scaling.costs import Cost, NotPredictedError
from trainhall.cluster.experiments.scaling.curves import Curve, MeasuredPoint, Split
from trainhall.cluster.experiments.scaling.fit import Terms, fit
from trainhall.training.spec.resources import MAX_WORKERS

_LEAST_POINTS = 3
"""Two to fit, and one to validate the fit."""
_MOST_LOG = 700.0
"""Larger powers of e overflow."""


@dataclass(frozen=True)
class PredictedPoint:
    workers: int
    batch: int
    split: Split
    speed: float
    speedup: float


@dataclass(frozen=True)
class Model:
    """A fitted model.

    Attributes:
        fitted_on: the points, ascending.
        validated_on: the largest point, which is not among those.
    """

    fitted_on: tuple[MeasuredPoint, ...]
    validated_on: MeasuredPoint
    curve: Curve
    cost: Callable[[int], Cost]
    compute: Terms
    data: Terms
    communication: Terms

    @property
    def error(self) -> float:
        """Predicted over measured speed at `validated_on`, minus 1."""
        assert self.validated_on.batch is not None
        predicted = self._point(self.validated_on.workers, self.validated_on.batch)
        return predicted.speed / self.validated_on.speed - 1

    def predictions(self) -> Iterator[PredictedPoint]:
        """Yield the powers of two beyond the measured points, as far as a batch can be shared."""
        workers = 1
        while workers <= MAX_WORKERS:
            batch = self.curve.batch(workers)
            if workers > self.validated_on.workers and batch is not None:
                yield self._point(workers, batch)
            workers *= 2

    def _point(self, workers: int, batch: int) -> PredictedPoint:
        each = batch / workers
        split = Split(
            self.compute.at(1.0, each),
            self.data.at(1.0, each),
            self.communication.at(*self.cost(workers)),
        )
        base = self.fitted_on[0]
        assert base.split is not None
        assert base.batch is not None
        # The objective need not be samples a second: tokens, say, are as many times more.
        unit = base.speed * base.split.seconds / base.batch
        speed = unit * batch / split.seconds
        return PredictedPoint(workers, batch, split, speed, self.curve.speedup(workers, speed)[0])


def fit_model(curve: Curve, cost: Callable[[int], Cost]) -> Model:
    """Fit the model of a curve to all but the largest of its measured points.

    Raises:
        NotPredictedError: there are too few points.
    """
    points = curve.fittable
    if any(point.split is None for point in points):
        raise NotPredictedError("the time that steps communicate was not measured")
    if len(points) < _LEAST_POINTS:
        raise NotPredictedError(
            f"it takes {_LEAST_POINTS} numbers of workers that were measured on cores or devices "
            f"of their own, and there {'is' if len(points) == 1 else 'are'} {len(points)}"
        )
    *fitted, validated = points
    return Model(tuple(fitted), validated, curve, cost, *_terms(fitted, cost))


def speedup_intervals(curve: Curve, cost: Callable[[int], Cost]) -> dict[int, Interval]:
    """Return the intervals of predicted speed-ups over the repeats, each fitted by itself, by the
    number of workers; empty with one run each."""
    try:
        models = [fit_model(repeat, cost) for repeat in curve.repeats()]
    except NotPredictedError:
        return {}
    # Their logarithms: a speed-up is as likely half as twice as large, and never below zero.
    logs: dict[int, list[float]] = defaultdict(list)
    for model in models:
        for point in model.predictions():
            logs[point.workers].append(math.log(point.speedup))
    intervals = {}
    for workers, of_repeats in logs.items():
        if (interval := mean_interval(of_repeats)) is not None:
            low, high = interval
            intervals[workers] = math.exp(low), math.exp(min(high, _MOST_LOG))
    return intervals


def _terms(points: list[MeasuredPoint], cost: Callable[[int], Cost]) -> tuple[Terms, Terms, Terms]:
    splits = [point.split for point in points if point.split is not None]
    seconds = [split.seconds for split in splits]
    samples = [(1.0, (point.batch or 0) / point.workers) for point in points]
    return (
        fit(samples, [split.compute for split in splits], seconds),
        fit(samples, [split.data for split in splits], seconds),
        fit([cost(p.workers) for p in points], [s.communication for s in splits], seconds),
    )
