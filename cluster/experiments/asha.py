"""Asynchronous successive halving (ASHA, Li et al., arXiv:1810.05934), as a pure function.

Runs pause at rungs, steps at which their trials are compared. Of the results of a rung, 1/factor is
promoted to the next one, the best first, as soon as there are enough results; at least one is, once
no other trial can reach the rung, so that one trial takes all steps. Unlike in the paper, the
promotions from a rung never exceed this share, though later results may show that one was too
early: this bounds the steps. A trial of which a run failed is left out, and the next best takes its
place.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.lifecycle.states import TrialState

RunKey = tuple[int, int]
"""Number of the trial and of the repeat."""


@dataclass(frozen=True)
class RungRun:
    """One run and its objective at each rung that it has reached."""

    key: RunKey
    state: TrialState
    results: tuple[float | None, ...] = ()
    """None: it has no finite value there."""

    @property
    def has_failed(self) -> bool:
        return self.state in (TrialState.FAILED, TrialState.CANCELLED)


class Status(StrEnum):
    RUNNING = "running"
    """Runs to the next rung or the end, is not started yet, or has completed."""
    WAITING = "waiting"
    """All its runs are paused at the same rung."""
    STOPPED = "stopped"
    FAILED = "failed"
    """One of its runs failed or was cancelled: it is not compared."""


@dataclass(frozen=True)
class RungTrial:
    """One trial and its result at each rung that all of its runs have reached."""

    number: int
    status: Status
    results: tuple[float | None, ...] = ()
    """Lower is better."""
    waiting: tuple[RunKey, ...] = ()
    """Its runs that wait at the last of these rungs; of a failed trial, at any or to be started."""


@dataclass(frozen=True)
class Stop:
    """A trial that can no longer be promoted, and how it compares at its last rung."""

    trial: int
    has_value: bool
    better: int = 0
    """Trials with a better result."""
    compared: int = 0
    """Trials with a result."""
    places: int = 0
    """Promotions that the rung may ever allow."""


@dataclass(frozen=True)
class _Rung:
    ranked: list[RungTrial]
    """Trials with a result, the best first."""
    waiting: list[RungTrial]
    """Ranked trials that wait here, in the same order."""
    promoted: int
    coming: int
    """Most trials that may still reach it."""
    factor: int

    @property
    def places(self) -> int:
        """Promotions that its results allow."""
        share = len(self.ranked) // self.factor
        return max(1, share) if self.ranked and not self.coming else share

    @property
    def places_at_most(self) -> int:
        """Promotions that it may ever allow."""
        most = len(self.ranked) + self.coming
        return max(1, most // self.factor) if most else 0


def trials_of(runs: Iterable[RungRun], *, lower_is_better: bool) -> list[RungTrial]:
    """Return the trials of runs, in their order."""
    by_trial: dict[int, list[RungRun]] = defaultdict(list)
    for run in runs:
        by_trial[run.key[0]].append(run)
    sign = 1 if lower_is_better else -1
    return [_trial(number, repeats, sign) for number, repeats in sorted(by_trial.items())]


def _trial(number: int, repeats: Sequence[RungRun], sign: int) -> RungTrial:
    if any(run.has_failed for run in repeats):
        unfinished = (TrialState.PENDING, TrialState.WAITING)
        left = tuple(run.key for run in repeats if run.state in unfinished)
        return RungTrial(number, Status.FAILED, waiting=left)
    # As far as all of them have come.
    by_rung = zip(*(run.results for run in repeats), strict=False)
    results = tuple(_mean(values, sign) for values in by_rung)
    rung = len(results)
    waiting = [r.key for r in repeats if r.state is TrialState.WAITING and len(r.results) == rung]
    status = Status.RUNNING
    if any(run.state is TrialState.STOPPED for run in repeats):
        status = Status.STOPPED
    elif len(waiting) == len(repeats):
        status = Status.WAITING
    return RungTrial(number, status, results, tuple(waiting))


def _mean(results: Sequence[float | None], sign: int) -> float | None:
    """Return the mean of the repeats' results at a rung; None: one of them has no value."""
    values = [value for value in results if value is not None]
    return sign * mean_of_repeats(values) if len(values) == len(results) else None


def next_promotion(
    trials: Sequence[RungTrial], *, rungs: int, factor: int, undecided: int = 0
) -> int | None:
    """Return the number of the trial to promote next, if there is one: the highest rung first.

    Args:
        rungs: how many there are; no trial waits at the last one.
        undecided: trials whose values are still to be chosen.
    """
    for rung in reversed(_rungs(trials, rungs, factor, undecided)):
        if rung.waiting and rung.promoted < rung.places:
            return rung.waiting[0].number
    return None


def stops(
    trials: Sequence[RungTrial], *, rungs: int, factor: int, undecided: int = 0
) -> list[Stop]:
    """Return the waiting trials that can no longer be promoted, whatever the others do."""
    found = [
        Stop(trial.number, has_value=False)
        for trial in trials
        if trial.status is Status.WAITING and trial.results[-1] is None
    ]
    for rung in _rungs(trials, rungs, factor, undecided):
        left = max(0, rung.places_at_most - rung.promoted)
        better = {trial.number: i for i, trial in enumerate(rung.ranked)}
        found += [
            Stop(trial.number, True, better[trial.number], len(rung.ranked), rung.places_at_most)
            for trial in rung.waiting[left:]
        ]
    return found


def _rungs(trials: Sequence[RungTrial], rungs: int, factor: int, undecided: int) -> list[_Rung]:
    """Return the rungs that trials are promoted from, the lowest first."""
    found: list[_Rung] = []
    coming = undecided
    for i in range(rungs - 1):
        coming += sum(t.status is Status.RUNNING and len(t.results) == i for t in trials)
        reached = [t for t in trials if len(t.results) > i]
        ranked = sorted(
            (t for t in reached if t.results[i] is not None),
            key=lambda t: (t.results[i], t.number),
        )
        waiting = [t for t in ranked if t.status is Status.WAITING and len(t.results) == i + 1]
        promoted = sum(len(t.results) > i + 1 or t.status is Status.RUNNING for t in reached)
        rung = _Rung(ranked, waiting, promoted, coming, factor)
        found.append(rung)
        coming = min(max(0, rung.places_at_most - promoted), len(waiting) + coming)
    return found
