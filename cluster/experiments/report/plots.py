"""The charts of a report: the objective by trial and over each field, and the importance."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from trainhall.cluster.experiments.analysis.text import is_number, value_text
from trainhall.cluster.experiments.analysis.views import AnalysisRow, ScalingPoint
from trainhall.cluster.experiments.report.content import Report
from trainhall.cluster.experiments.report.svg import (
    Axis,
    Bar,
    Curve,
    Kind,
    Mark,
    Point,
    bars,
    doubling_curves,
    scatter,
)
from trainhall.cluster.experiments.scaling.table import curve_name
from trainhall.training.spec.recovery import MetricMode

_MOST_FIELDS = 8
_WIDE = 100
"""Positive numbers that span this factor are drawn on a logarithmic axis."""


def plots(report: Report) -> list[tuple[str, str]]:
    """Return the charts, each with its title."""
    if report.analysis.scaling is not None:
        return list(_speedups(report))
    if report.has_cells:
        return list(_over_fields(report))
    return [*_over_trials(report), *_importance(report), *_over_fields(report)]


def _speedups(report: Report) -> Iterator[tuple[str, str]]:
    found = [curve for curve in report.analysis.scaling or () if curve.points]
    if not found:
        return
    title = "Speed-up over workers (filled: measured; hollow, dashed: predicted"
    if any(point.shares_cores for curve in found for point in curve.points):
        title += "; crosses: ranks shared cores"
    drawn = [
        Curve(
            curve_name(curve.scaling, curve.values, report.labels),
            [Point(point.workers, point.speedup, _mark(point)) for point in curve.points],
        )
        for curve in found
    ]
    yield f"{title})", doubling_curves(title, drawn, "workers", "speed-up")


def _mark(point: ScalingPoint) -> Mark:
    if point.is_predicted:
        return Mark.HOLLOW
    return Mark.CROSS if point.shares_cores else Mark.FILLED


def _over_trials(report: Report) -> Iterator[tuple[str, str]]:
    rows = _rated(report)
    if rows:
        values = [row.objective or 0.0 for row in rows]
        better = min if report.analysis.goal == MetricMode.MIN else max
        title = f"{report.analysis.metric} by trial, with the best so far"
        points = [(float(row.trial), value) for row, value in zip(rows, values, strict=True)]
        line = list(accumulate(values, better))
        best = _best(report, rows)
        axis = Axis("trial")
        yield title, scatter(title, points, axis, report.analysis.metric, best=best, line=line)


def _importance(report: Report) -> Iterator[tuple[str, str]]:
    found = report.analysis.importance.fields
    if found:
        title = "Importance of the fields, with 95 % intervals (faint: no effect shown)"
        rows = [
            Bar(
                report.labels[each.field],
                each.share,
                (each.interval[0], each.interval[1]),
                is_faint=not each.has_effect,
            )
            for each in found
        ]
        yield title, bars(title, rows)


def _over_fields(report: Report) -> Iterator[tuple[str, str]]:
    rows = _rated(report)
    if not rows:
        return
    important = [each.field for each in report.analysis.importance.fields]
    for field in (important or list(report.labels))[:_MOST_FIELDS]:
        label, metric = report.labels[field], report.analysis.metric
        axis, places = _axis(
            label, report.spec["space"][field], [row.values[field] for row in rows]
        )
        points = [(place, row.objective or 0.0) for place, row in zip(places, rows, strict=True)]
        title = f"{metric} over {label}"
        yield title, scatter(title, points, axis, metric, best=_best(report, rows))


def _rated(report: Report) -> list[AnalysisRow]:
    return [row for row in report.analysis.table if row.objective is not None]


def _best(report: Report, rows: Sequence[AnalysisRow]) -> int | None:
    best = report.analysis.best
    numbers = [row.trial for row in rows]
    return numbers.index(best.trial) if best is not None else None


def _axis(label: str, dimension: Any, values: Sequence[Any]) -> tuple[Axis, list[float]]:
    """Return the axis of a field, and the places of its values on it."""
    if all(map(is_number, values)):
        low, high = min(values), max(values)
        is_log = (isinstance(dimension, dict) and "log" in dimension) or (
            low > 0 and high / low >= _WIDE
        )
        return Axis(label, Kind.LOG if is_log else Kind.LINEAR), [float(v) for v in values]
    listed = dimension if isinstance(dimension, list) else values
    keys = list(dict.fromkeys(map(repr, [*listed, *values])))
    texts = {repr(value): value_text(value) for value in [*listed, *values]}
    axis = Axis(label, Kind.NAMES, tuple(texts[key] for key in keys))
    return axis, [float(keys.index(repr(value))) for value in values]
