"""Curves of a scaling study: measured speeds by the number of workers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainhall.cluster.experiments.analysis.intervals import Interval, ratio_interval
from trainhall.cluster.experiments.analysis.rows import TrialRow
from trainhall.cluster.experiments.scaling_space import (
    BATCH,
    STRONG,
    WORKERS,
    job_batch,
    scalings_of,
    weak_batch,
)


@dataclass(frozen=True)
class Split:
    """Parts of the time of a step, in seconds."""

    compute: float
    data: float
    """Waiting for data."""
    communication: float
    """Waiting for other ranks."""

    @property
    def seconds(self) -> float:
        return self.compute + self.data + self.communication


@dataclass(frozen=True)
class MeasuredPoint:
    workers: int
    batch: int | None
    """Samples per step over all workers; None of a script."""
    trial: TrialRow
    split: Split | None
    """None: not measured."""

    @property
    def speed(self) -> float:
        assert self.trial.objective is not None
        return self.trial.objective

    @property
    def shares_cores(self) -> bool:
        return any(run.shares_cores for run in self.trial.runs)

    @property
    def repeats(self) -> dict[int, "MeasuredPoint"]:
        """Return the point of each of its runs by itself, by the number of the repeat."""
        return {
            run.repeat: replace(
                self,
                trial=replace(self.trial, runs=(run,), objective=run.objective),
                split=_split(run.figures),
            )
            for run in self.trial.runs
            if run.objective is not None
        }

    def speedup_interval(self, base: "MeasuredPoint") -> Interval | None:
        """Return the interval of `speedup`."""
        interval = ratio_interval(self.trial.objectives, base.trial.objectives)
        if interval is None or self is base:
            return None
        low, high = interval
        return low * base.workers, high * base.workers


@dataclass(frozen=True)
class Curve:
    """Numbers of workers with the same other values."""

    scaling: str
    values: Mapping[str, Any]
    """Values of the other fields that vary."""
    fewest: int
    """The fewest workers of the study, which have the job's batch size."""
    job_batch: int | None
    points: tuple[MeasuredPoint, ...]
    """Ascending; those with a value of the objective for every repeat."""

    @property
    def base(self) -> MeasuredPoint:
        """The point that speed-ups are relative to."""
        return self.points[0]

    @property
    def fittable(self) -> tuple[MeasuredPoint, ...]:
        """Points whose ranks had cores or devices of their own."""
        return tuple(point for point in self.points if not point.shares_cores)

    def repeats(self) -> Iterator["Curve"]:
        """Yield the curve of each repeat by itself, of those that all points have."""
        repeats = [point.repeats for point in self.points]
        for number in sorted(set.intersection(*map(set, repeats))):
            yield replace(self, points=tuple(points[number] for points in repeats))

    def speedup(self, workers: int, speed: float) -> tuple[float, float]:
        """Return the speed-up and the efficiency of a speed. The workers of the base count as fully
        used."""
        speedup = speed / self.base.speed * self.base.workers
        return speedup, speedup / workers

    def batch(self, workers: int) -> int | None:
        """Return the batch size of a number of workers; None: they cannot share one evenly."""
        if self.job_batch is None:
            return None
        if self.scaling == STRONG:
            return None if self.job_batch % workers else self.job_batch
        return weak_batch(self.job_batch, workers, self.fewest)


def curves(spec: Mapping[str, Any], trials: Sequence[TrialRow]) -> list[Curve]:
    """Return the curves of a study, those without a measured point too.

    Args:
        spec: document of the experiment.
    """
    job, fewest = spec["job"], min(spec["space"][WORKERS])
    found: dict[tuple[str, str], tuple[Mapping[str, Any], list[MeasuredPoint]]] = {}
    for trial in trials:
        others = {f: v for f, v in trial.values.items() if f not in (WORKERS, BATCH)}
        for scaling in scalings_of(job, trial.values, fewest, spec["scaling"]):
            _, points = found.setdefault((repr(others), scaling), (others, []))
            points += _point(job, trial)
    return [
        Curve(scaling, values, fewest, job_batch(job), tuple(sorted(points, key=_workers)))
        for (_, scaling), (values, points) in found.items()
    ]


def _point(job: Mapping[str, Any], trial: TrialRow) -> Iterator[MeasuredPoint]:
    if trial.objective is None or trial.objective <= 0:
        return  # not measured, or no speed, which nothing can be compared with
    batch = trial.values.get(BATCH, job_batch(job))
    yield MeasuredPoint(trial.values[WORKERS], batch, trial, _split(trial.figures))


def _split(figures: Mapping[str, float | None]) -> Split | None:
    step, communication = figures.get("step_seconds"), figures.get("communication_share")
    if step is None or step <= 0 or communication is None:
        return None
    data = figures.get("data_share") or 0.0
    return Split(max(0.0, 1 - data - communication) * step, data * step, communication * step)


def _workers(point: MeasuredPoint) -> int:
    return point.workers
