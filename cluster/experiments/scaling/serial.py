"""Serial share: the part of the work that more workers do not speed up.

Strong scaling: Amdahl, "Validity of the single processor approach to achieving large scale
computing capabilities", AFIPS 1967: a step takes s + (1-s)/n of the time of one worker. Weak
scaling: Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31, 1988: n workers are
s + (1-s)·n as fast as one.
"""

from dataclasses import dataclass

from trainhall.cluster.experiments.analysis.intervals import SHARE, Interval, mean_interval
from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.experiments.scaling.curves import Curve
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
    if len(curve.fittable) < 2:
        return None
    shares = [_share(each) for each in curve.repeats()]
    interval = mean_interval(shares, SHARE)
    fitted_on = [point.workers for point in curve.fittable]
    return Serial(mean_of_repeats(shares), interval, fitted_on)


def _share(curve: Curve) -> float:
    is_strong = curve.scaling == STRONG
    # The time of a step with a fixed batch, or the speed with a batch that grows; both relative.
    speeds = [p.speed / curve.base.speed for p in curve.fittable]
    values = [1 / speed for speed in speeds] if is_strong else speeds
    rows = [(1.0, 1 / p.workers if is_strong else float(p.workers)) for p in curve.fittable]
    serial, parallel = fit(rows, values, values)
    return serial / (serial + parallel)
