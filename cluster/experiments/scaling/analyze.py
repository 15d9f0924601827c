"""The analysis of a scaling study, put together from its runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainhall.cluster.experiments.analysis import views
from trainhall.cluster.experiments.analysis.analyze import common_fields
from trainhall.cluster.experiments.analysis.intervals import Interval
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow, TrialRow, rated
from trainhall.cluster.experiments.benchmark.rows import benchmark_rows, cell_trials
from trainhall.cluster.experiments.runs import document_of
from trainhall.cluster.experiments.scaling.costs import NotPredictedError, cost_of
from trainhall.cluster.experiments.scaling.curves import Curve, MeasuredPoint, Split, curves
from trainhall.cluster.experiments.scaling.findings import scaling_findings
from trainhall.cluster.experiments.scaling.model import (
    Model,
    PredictedPoint,
    fit_model,
    speedup_intervals,
)
from trainhall.cluster.experiments.scaling.serial import serial_share
from trainhall.cluster.experiments.scaling.worthwhile import SpeedPoint, worthwhile
from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec


def analyze_scaling(
    experiment: ExperimentRow, spec: Mapping[str, Any], runs: Sequence[RunRow], now: datetime
) -> views.Analysis:
    """Analyze a scaling study as far as its runs have ended.

    Args:
        spec: document of the experiment.
    """
    trials = cell_trials(spec["job"], runs)
    rows = benchmark_rows(spec, trials, experiment.sign)
    found = scaling_curves(spec, trials)
    return views.Analysis(
        **common_fields(experiment, runs, rated(trials, experiment.sign), now),
        findings=scaling_findings(experiment, trials, rows, found),
        comparisons=[],
        importance=views.ImportanceOfFields(fields=[], note=""),
        scaling=found,
        table=rows,
    )


def scaling_curves(spec: Mapping[str, Any], trials: Sequence[TrialRow]) -> list[views.ScalingCurve]:
    """Return the curves of a scaling study with what is fitted to them and predicted."""
    return [_curve(spec["job"], curve) for curve in curves(spec, trials)]


def _curve(job: Mapping[str, Any], curve: Curve) -> views.ScalingCurve:
    note, model, intervals = "", None, dict[int, Interval]()
    if len(curve.points) < 2:
        note = "a speed-up takes two measured numbers of workers"
    else:
        try:
            cost = cost_of(_job_of(job, curve))
            model = fit_model(curve, cost)
            intervals = speedup_intervals(curve, cost)
        except NotPredictedError as error:
            note = str(error)
    points = [_measured(curve, point) for point in curve.points]
    if model is not None:
        points += [
            _predicted(curve, point, intervals.get(point.workers)) for point in model.predictions()
        ]
    points.sort(key=lambda point: (point.workers, point.is_predicted))
    serial = serial_share(curve)
    return views.ScalingCurve(
        scaling=curve.scaling,
        values=dict(curve.values),
        points=points,
        serial_share=None if serial is None else views.SerialShare(
            share=serial.share, interval=_ends(serial.interval), fitted_on=serial.fitted_on,
        ),
        worthwhile=_worthwhile(points),
        model=None if model is None else _model(model),
        note=note,
    )  # fmt: skip


def _job_of(job: Mapping[str, Any], curve: Curve) -> Any:
    try:
        return validate_spec(document_of(job, curve.base.trial.values))
    except SpecError as error:
        # It was valid when the experiment was created, by another version.
        raise NotPredictedError(str(error)) from None


def _measured(curve: Curve, point: MeasuredPoint) -> views.ScalingPoint:
    interval = point.speedup_interval(curve.base)
    return views.ScalingPoint(
        trial=point.trial.trial,
        is_predicted=False,
        shares_cores=point.shares_cores,
        speedup_interval=_ends(interval),
        **_figures(curve, point.workers, point.batch, point.speed, point.split),
    )


def _predicted(
    curve: Curve, point: PredictedPoint, interval: Interval | None
) -> views.ScalingPoint:
    if interval is not None:
        # The fit to the means need not lie among those to the repeats.
        interval = min(interval[0], point.speedup), max(interval[1], point.speedup)
    return views.ScalingPoint(
        trial=None,
        is_predicted=True,
        shares_cores=False,
        speedup_interval=_ends(interval),
        **_figures(curve, point.workers, point.batch, point.speed, point.split),
    )


def _figures(
    curve: Curve, workers: int, batch: int | None, speed: float, split: Split | None
) -> dict[str, Any]:
    speedup, efficiency = curve.speedup(workers, speed)
    return {
        "workers": workers,
        "batch_size": batch,
        "speed": speed,
        "speedup": speedup,
        "efficiency": efficiency,
        "compute_seconds": None if split is None else split.compute,
        "data_seconds": None if split is None else split.data,
        "communication_seconds": None if split is None else split.communication,
    }


def _model(model: Model) -> views.ScalingModel:
    return views.ScalingModel(
        fitted_on=[point.workers for point in model.fitted_on],
        validated_on=model.validated_on.workers,
        error=model.error,
    )


def _worthwhile(points: Sequence[views.ScalingPoint]) -> views.WorthwhileWorkers | None:
    found = worthwhile(
        [
            SpeedPoint(point.workers, point.speed, point.efficiency, point.is_predicted)
            for point in points
            if not point.shares_cores
        ]
    )
    if found is None:
        return None
    return views.WorthwhileWorkers(
        workers=found.workers, is_predicted=found.is_predicted, reason=found.reason
    )


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
