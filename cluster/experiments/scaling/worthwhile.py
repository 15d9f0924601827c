"""Number of workers up to which more of them pay.

They pay while efficiency is at least 50 %, and while twice as many are at least 10 % faster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.training.common.units import percent

LEAST_EFFICIENCY = 0.5
LEAST_GAIN = 0.1
"""Least gain of twice as many workers."""


@dataclass(frozen=True)
class SpeedPoint:
    workers: int
    speed: float
    efficiency: float
    is_predicted: bool


@dataclass(frozen=True)
class Worthwhile:
    """The most workers that pay; without a reason, no end was found."""

    workers: int
    is_predicted: bool
    reason: str = ""


def worthwhile(points: Sequence[SpeedPoint]) -> Worthwhile | None:
    """Return the last point that pays.

    Args:
        points: by number of workers.
    """
    if len(points) < 2:
        return None
    before = points[0]
    for point in points[1:]:
        if reason := _reason(before, point):
            return Worthwhile(before.workers, point.is_predicted, reason)
        before = point
    return Worthwhile(before.workers, before.is_predicted)


def _reason(before: SpeedPoint, point: SpeedPoint) -> str:
    """Return why a point does not pay; empty: it does."""
    if point.efficiency < LEAST_EFFICIENCY:
        return f"at {point.workers:,} efficiency is {percent(point.efficiency)}"
    doublings = math.log2(point.workers / before.workers)
    gain = (point.speed / before.speed) ** (1 / doublings) - 1
    if gain < LEAST_GAIN:
        more = f"{percent(abs(gain))} {'faster' if gain >= 0 else 'slower'}"
        return f"at {point.workers:,} twice as many workers are {more}"
    return ""
