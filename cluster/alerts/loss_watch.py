"""The losses of jobs as they come in: values that are not finite, and spikes."""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, SupportsFloat, SupportsInt

from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.monitoring.points import Points

WARM_UP = 20
"""Steps of an attempt before the first spike: its mean has to settle."""
MEMORY = 50
"""Steps, about, that the running mean goes back."""
REPLAYED = 10_000
"""Newest losses of a job that are compared again after a restart."""
RECENT_SECONDS = 60.0
"""Time before the newest loss in which a finding may not have been reported before a restart."""
SPREADS, RATIO = 8.0, 1.5
"""A spike lies so many mean deviations, and by this factor, above the running mean."""


@dataclass(frozen=True)
class LossFinding:
    job_id: str
    attempt: int
    condition: Condition
    step: int
    loss: float
    mean: float


@dataclass
class _Curve:
    attempt: int
    last_step: int = -1
    steps: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    reported: Condition | None = None
    """Condition that is reported already, and continues."""


class _Losses(NamedTuple):
    job_id: str
    attempt: int
    steps: list[int]
    losses: list[float]


class LossWatch:
    """Compares each loss with the running mean of its attempt.

    It costs nothing as long as no alert asks for it, and keeps what it found until it is taken.

    Args:
        found: called when there is something to take.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self.wanted = False
        """An alert reports losses."""
        self._notify = found
        self._curves: dict[str, _Curve] = {}
        self._found: list[LossFinding] = []
        self._held: list[_Losses] | None = None
        """Losses to compare later; None: they are compared at once."""

    def record(
        self,
        job_id: str,
        attempt: int,
        steps: Iterable[SupportsInt],
        losses: Iterable[SupportsFloat],
    ) -> None:
        """Compare the newest losses of a job with its running mean."""
        if not self.wanted:
            return
        if self._held is not None:
            self._held.append(_Losses(job_id, attempt, [*map(int, steps)], [*map(float, losses)]))
            return
        curve = self._curves.get(job_id)
        if curve is not None and attempt < curve.attempt:
            return  # they come late
        if curve is None or curve.attempt != attempt:
            curve = self._curves[job_id] = _Curve(attempt)
        before = len(self._found)
        for step, value in zip(steps, losses, strict=True):
            loss = float(value)
            condition = _classify(curve, loss)
            if condition is not None and condition is not curve.reported:
                finding = LossFinding(job_id, attempt, condition, int(step), loss, curve.mean)
                self._found.append(finding)
            curve.reported, curve.last_step = condition, int(step)
            if math.isfinite(loss):
                _follow(curve, loss)
        if len(self._found) > before:
            self._notify()

    def hold(self) -> None:
        """Compare nothing before `release`: older losses are being read."""
        self._held = []

    def release(self) -> None:
        """Compare what came since `hold`, unless an adopted curve has it."""
        held, self._held = self._held or [], None
        for job_id, attempt, steps, losses in held:
            curve, first = self._curves.get(job_id), 0
            if curve is not None and curve.attempt == attempt:
                first = bisect_right(steps, curve.last_step)
            self.record(job_id, attempt, steps[first:], losses[first:])

    def adopt(self, other: "LossWatch") -> None:
        """Continue with the curves and the findings of another one."""
        self._curves |= other._curves
        self._found += other._found

    def take(self) -> list[LossFinding]:
        """Return what was found since the last call."""
        found, self._found = self._found, []
        return found

    def forget_all_but(self, job_ids: Collection[str]) -> None:
        """Forget the curves of jobs that do not run."""
        for job_id in self._curves.keys() - set(job_ids):
            del self._curves[job_id]


def replay(job_id: str, attempt: int, losses: Points) -> LossWatch:
    """Return a watch that has compared the stored losses of a job, with its recent findings."""
    watch = LossWatch(lambda: None)
    watch.wanted = True
    steps, values = losses.steps[-REPLAYED:], losses.values[-REPLAYED:]
    times = losses.times[-REPLAYED:]
    recent = times >= times.max(initial=0.0) - RECENT_SECONDS
    watch.record(job_id, attempt, steps[~recent], values[~recent])
    watch.take()
    watch.record(job_id, attempt, steps[recent], values[recent])
    return watch


def _classify(curve: _Curve, loss: float) -> Condition | None:
    if not math.isfinite(loss):
        return Condition.LOSS_NOT_FINITE
    above = loss - curve.mean
    if curve.steps < WARM_UP or above <= SPREADS * curve.deviation:
        return None
    return Condition.LOSS_SPIKE if above > (RATIO - 1.0) * abs(curve.mean) else None


def _follow(curve: _Curve, loss: float) -> None:
    """Update the running mean, as a plain mean at first."""
    curve.steps += 1
    weight = 1.0 / min(curve.steps, MEMORY)
    curve.deviation += weight * (abs(loss - curve.mean) - curve.deviation) * (curve.steps > 1)
    curve.mean += weight * (loss - curve.mean)
