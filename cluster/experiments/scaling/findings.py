"""Findings about a scaling study, as short sentences."""

from collections.abc import Iterator, Mapping, Sequence

from trainhall.cluster.experiments.analysis.comparisons import ONE_RUN
from trainhall.cluster.experiments.analysis.findings import cost, failures, progress
from trainhall.cluster.experiments.analysis.intervals import LEVEL_PERCENT
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, TrialRow, field_labels
from trainhall.cluster.experiments.analysis.text import count, listing
from trainhall.cluster.experiments.analysis.views import BenchmarkRow, ScalingCurve, ScalingPoint
from trainhall.cluster.experiments.benchmark.findings import cannot_run, interrupted, shared_hosts
from trainhall.cluster.experiments.scaling.table import curve_name
from trainhall.cluster.experiments.scaling_space import STRONG
from trainhall.training.common.units import figure, percent

_NAMED = (256, 4096)
"""Numbers of workers whose prediction has a sentence; the table has all."""


def scaling_findings(
    experiment: ExperimentRow,
    trials: Sequence[TrialRow],
    rows: Sequence[BenchmarkRow],
    curves: Sequence[ScalingCurve],
) -> list[str]:
    """Return the findings, the most important first.

    Args:
        rows: one for each of `trials`.
    """
    labels = field_labels(experiment.space)
    runs = [run for trial in trials for run in trial.runs]
    return [
        *progress(experiment, runs),
        *curve_findings(curves, labels),
        *cannot_run(trials, labels),
        *failures([run for run in runs if run.can_run]),
        *_sharing_cores(trials),
        *interrupted(rows, labels),
        *shared_hosts(rows, labels),
        *cost(runs),
    ]


def curve_findings(curves: Sequence[ScalingCurve], labels: Mapping[str, str]) -> list[str]:
    """Return what the curves show.

    Args:
        labels: short names of the fields that vary.
    """
    return [text for curve in curves for text in _curve(curve, labels)]


def _curve(curve: ScalingCurve, labels: Mapping[str, str]) -> Iterator[str]:
    name = curve_name(curve.scaling, curve.values, labels)
    measured = [point for point in curve.points if not point.is_predicted]
    if len(measured) < 2:
        yield f"{name}: nothing is fitted or predicted; {curve.note}."
        return
    yield f"{name}: {_largest(measured)}."
    yield from _serial(curve, name)
    yield from _worthwhile(curve, name)
    if curve.note:
        yield f"{name}: nothing is predicted; {curve.note}."
    yield from _predictions(curve, name)


def _largest(measured: Sequence[ScalingPoint]) -> str:
    base = measured[0]
    last = next((p for p in reversed(measured[1:]) if not p.shares_cores), measured[-1])
    text = f"{last.workers:,} workers are {figure(last.speed / base.speed)} × as fast as "
    text += f"{base.workers:,}, an efficiency of {percent(last.efficiency)}"
    text += " with ranks that share cores" if last.shares_cores else ""
    if last.speedup_interval is None:
        return f"{text}; {ONE_RUN}"
    low, high = (end / last.workers for end in last.speedup_interval)
    return f"{text} ({LEVEL_PERCENT} % interval {percent(low)} to {percent(high)})"


def _serial(curve: ScalingCurve, name: str) -> Iterator[str]:
    if (serial := curve.serial_share) is None:
        return
    is_strong = curve.scaling == STRONG
    law = f"{'Amdahl' if is_strong else 'Gustafson'}'s law"
    if serial.share >= 1:
        yield f"{name}: more workers are not faster, which {law} does not describe."
        return
    text = f"{name}: a serial share of {percent(serial.share)}"
    if serial.interval is not None:
        low, high = map(percent, serial.interval)
        text += f" ({LEVEL_PERCENT} % interval {low} to {high})"
    text += f" by {law}, fitted on {_numbers(serial.fitted_on)} workers"
    if is_strong and serial.share > 0:
        text += f"; it limits the speed-up to {figure(1 / serial.share)} ×"
    yield f"{text}."


def _worthwhile(curve: ScalingCurve, name: str) -> Iterator[str]:
    if (found := curve.worthwhile) is None:
        return
    kind = "predicted" if found.is_predicted else "measured"
    end = f"; {found.reason} ({kind})" if found.reason else f", the largest {kind} number"
    fewest = curve.points[0].workers
    if found.workers > fewest:
        yield f"{name}: more workers pay up to {found.workers:,}{end}."
    else:
        pay = "pays" if fewest == 1 else "pay"
        yield f"{name}: no more than {count(fewest, 'worker')} {pay}{end}."


def _predictions(curve: ScalingCurve, name: str) -> Iterator[str]:
    if (model := curve.model) is None:
        return
    yield (
        f"{name}: the model, fitted on {_numbers(model.fitted_on)} workers, predicts "
        f"{100 * abs(model.error):.1f} % {'more' if model.error >= 0 else 'less'} speed at "
        f"{model.validated_on:,} than was measured."
    )
    predicted = [point for point in curve.points if point.is_predicted]
    named = [point for point in predicted if point.workers in _NAMED] or predicted[-1:]
    for point in named:
        yield (
            f"{name}: predicted, not measured: {point.workers:,} workers have a speed-up of "
            f"{figure(point.speedup)} ×{_interval(point)}, an efficiency of "
            f"{percent(point.efficiency)}."
        )


def _interval(point: ScalingPoint) -> str:
    if point.speedup_interval is None:
        return ""
    low, high = map(figure, point.speedup_interval)
    return f" ({LEVEL_PERCENT} % interval {low} to {high})"


def _sharing_cores(trials: Sequence[TrialRow]) -> Iterator[str]:
    shared = [trial for trial in trials if any(run.shares_cores for run in trial.runs)]
    if shared:
        yield (
            f"In {count(len(shared), 'combination')} ranks shared cores or devices: marked, and "
            "left out of all that is fitted."
        )


def _numbers(numbers: Sequence[int]) -> str:
    return listing([f"{number:,}" for number in numbers])
