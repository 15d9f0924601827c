"""Serial share: the part of the work that more workers do not speed up.

Strong scaling: Amdahl, "Validity of the single processor approach to achieving large scale
computing capabilities", AFIPS 1967: a step takes s + (1-s)/n of the time of one worker. Weak
scaling: Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31, 1988: n workers are
s + (1-s)·n as fast as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.cluster.experiments.analysis.intervals import Interval, mean_interval
from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.experiments.scaling.curves import Curve, MeasuredPoint
from trainhall.cluster.experiments.scaling.fit import fit
from trainhall.cluster.experiments.scaling_space import STRONG


@dataclass(frozen=True)
class Serial:
    share: float
    interval: Interval | None
    """None: one run each."""
    fitted_on: list[int]


def serial_share(curve: Curve) -> Serial | None:
    """Fit the serial share; its interval is over the repeats, each fitted by itself. None: fewer
    than two points."""
    points = curve.fittable
    if len(points) < 2:
        return None
    repeats = [_speeds(point) for point in points]
    common = sorted(set.intersection(*map(set, repeats)))
    shares = [
        _share(curve.scaling, points, [speeds[repeat] for speeds in repeats]) for repeat in common
    ]
    interval = mean_interval(shares)
    if interval is not None:
        interval = max(0.0, interval[0]), min(1.0, interval[1])
    return Serial(mean_of_repeats(shares), interval, [point.workers for point in points])


def _speeds(point: MeasuredPoint) -> dict[int, float]:
    """Return the speeds of a point's runs, by the number of the repeat."""
    return {run.repeat: run.objective for run in point.trial.runs if run.objective is not None}


def _share(scaling: str, points: Sequence[MeasuredPoint], speeds: Sequence[float]) -> float:
    is_strong = scaling == STRONG
    # The time of a step with a fixed batch, or the speed with a batch that grows.
    values = [1 / speed for speed in speeds] if is_strong else list(speeds)
    rows = [(1.0, 1 / p.workers if is_strong else float(p.workers)) for p in points]
    serial, parallel = fit(rows, values, values)
    return serial / (serial + parallel)
