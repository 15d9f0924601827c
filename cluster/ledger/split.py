"""The division of an attempt's device-seconds into what was useful and what was lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainhall.arrays import Bools, Floats, np
from trainhall.cluster.ledger.spans import Span
from trainhall.monitoring.points import Points

_EVER = 2**62
_ALMOST_ALL = 0.9
"""Share of the steps that must have their waiting for data; a few get lost at an end."""


@dataclass(frozen=True, slots=True)
class Split:
    """Device-seconds; they add up to those that were held."""

    useful: float
    redone: float
    data: float | None
    """None: not measured, and part of `useful`."""
    idle: float
    last_step: int | None = None
    """The last step that counts; None: none does."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Measured steps of an attempt, in the order in which they came."""

    seconds: Points
    data_seconds: Points | None = None
    """None: not measured. Of fewer steps than `seconds` they are no measure of all."""
    superseded: Points = field(default_factory=Points.empty)
    """Seconds of steps that ranks took although others had replaced them."""


def split(
    held: float, spans: Sequence[Span], steps: Steps, redone_from: int | None = None
) -> Split:
    """Divide the device-seconds that an attempt held.

    Where clocks differ, steps may seem to take more than was held; they then share it.

    Args:
        redone_from: the first step that later attempts took again; None: they took none.
    """
    before = _EVER if redone_from is None else redone_from
    counts = _counted(steps.seconds, before)
    seconds = _device_seconds(steps.seconds, spans)
    useful = float(seconds[counts].sum())
    redone = float(seconds[~counts].sum() + _device_seconds(steps.superseded, spans).sum())
    data = None
    if steps.data_seconds is not None:
        waited = _device_seconds(steps.data_seconds, spans)[_counted(steps.data_seconds, before)]
        if len(waited) >= _ALMOST_ALL * counts.sum():
            data = min(useful, float(waited.sum()))
    scale = min(1.0, held / (useful + redone)) if useful + redone else 1.0
    useful, redone = useful * scale, redone * scale
    if data is not None:
        data *= scale
    counted = steps.seconds.steps[counts]
    return Split(
        useful=useful - (data or 0.0),
        redone=redone,
        data=data,
        idle=max(0.0, held - useful - redone),
        last_step=int(counted.max()) if len(counted) else None,
    )


def _counted(points: Points, before: int) -> Bools:
    """Return which points are of steps that nothing later took again."""
    steps = np.append(points.steps, before)
    following = np.minimum.accumulate(steps[::-1])[::-1]
    counts: Bools = points.steps < following[1:]
    return counts


def _device_seconds(points: Points, spans: Sequence[Span]) -> Floats:
    starts = np.array([span.start for span in spans])
    devices = np.array([len(span.devices) for span in spans])
    at = np.maximum(np.searchsorted(starts, points.times, side="right") - 1, 0)
    seconds = np.nan_to_num(points.values, nan=0.0, posinf=0.0, neginf=0.0)
    taken: Floats = np.maximum(seconds, 0.0) * devices[at]
    return taken
