"""The charts of a report: the objective by trial and over each field, and the importance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    Width,
    bars,
    doubling_curves,
    scatter,
)
from trainhall.cluster.experiments.scaling.table import curve_name
from trainhall.training.spec.recovery import MetricMode

_MOST_FIELDS = 8
_WIDE = 100
"""Positive numbers that span this factor are drawn on a logarithmic axis."""


_STATES = {
    "completed": Mark.FILLED,
    "stopped": Mark.CROSS,
    "pausing": Mark.HOLLOW,
    "paused": Mark.HOLLOW,
}
"""Marks of the states of trials; a triangle of all others."""
_NAMES = {
    Mark.FILLED: "completed",
    Mark.CROSS: "stopped early, at its last rung",
    Mark.HOLLOW: "paused, at its last rung",
    Mark.TRIANGLE: "running, at its last rung",
}
_SCALING = {
    Mark.FILLED: "measured",
    Mark.HOLLOW: "predicted",
    Mark.CROSS: "ranks shared cores",
}


def plots(report: Report, width: Width = Width.WIDE) -> list[tuple[str, str]]:
    """Return the charts, each with its title."""
    if report.analysis.scaling is not None:
        return list(_speedups(report, width))
    if report.has_cells:
        return list(_over_fields(report, width))
    return [
        *_over_trials(report, width), *_importance(report, width), *_over_fields(report, width)
    ]  # fmt: skip


def _speedups(report: Report, width: Width) -> Iterator[tuple[str, str]]:
    found = [curve for curve in report.analysis.scaling or () if curve.points]
    if not found:
        return
    title = "Speed-up over workers"
    drawn = [
        Curve(
            curve_name(curve.scaling, curve.values, report.labels),
            [Point(point.workers, point.speedup, _mark(point)) for point in curve.points],
        )
        for curve in found
    ]
    used = {point.mark for curve in drawn for point in curve.points}
    legend = [(mark, name) for mark, name in _SCALING.items() if mark in used]
    yield title, doubling_curves(title, drawn, "workers", "speed-up", width=width, legend=legend)


def _mark(point: ScalingPoint) -> Mark:
    if point.is_predicted:
        return Mark.HOLLOW
    return Mark.CROSS if point.shares_cores else Mark.FILLED


@dataclass(frozen=True)
class _Placed:
    """A trial with the value that it is drawn at."""

    row: AnalysisRow
    value: float

    def at(self, x: float) -> Point:
        if self.row.objective is not None:
            return Point(x, self.value, Mark.FILLED)
        return Point(x, self.value, _STATES.get(self.row.state, Mark.TRIANGLE))


def _over_trials(report: Report, width: Width) -> Iterator[tuple[str, str]]:
    placed = _placed(report)
    if not placed:
        return
    better = min if report.analysis.goal == MetricMode.MIN else max
    points = [each.at(float(each.row.trial)) for each in placed]
    # The line is of those that have completed: values at rungs are not compared with theirs.
    rated = [
        point for point, each in zip(points, placed, strict=True) if each.row.objective is not None
    ]
    best_so_far = accumulate((point.y for point in rated), better)
    line = [(point.x, value) for point, value in zip(rated, best_so_far, strict=True)]
    title = f"{report.analysis.metric} by trial" + (", with the best so far" if line else "")
    axis = Axis("trial", is_whole=True)
    yield title, scatter(
        title, points, axis, report.analysis.metric, width=width, best=_best(report, placed),
        line=line, legend=_legend(points),
    )  # fmt: skip


def _importance(report: Report, width: Width) -> Iterator[tuple[str, str]]:
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
        yield title, bars(title, rows, width=width)


def _over_fields(report: Report, width: Width) -> Iterator[tuple[str, str]]:
    placed = _placed(report)
    if not placed:
        return
    important = [each.field for each in report.analysis.importance.fields]
    for field in (important or list(report.labels))[:_MOST_FIELDS]:
        label, metric = report.labels[field], report.analysis.metric
        axis, places = _axis(
            label, report.spec["space"][field], [each.row.values[field] for each in placed]
        )
        points = [each.at(place) for place, each in zip(places, placed, strict=True)]
        title = f"{metric} over {label}"
        yield title, scatter(
            title, points, axis, metric, width=width, best=_best(report, placed),
            legend=_legend(points),
        )  # fmt: skip


def _placed(report: Report) -> list[_Placed]:
    """Return the trials with an objective, or a value at a rung of early stopping."""
    found = []
    for row in report.analysis.table:
        value = row.objective
        if value is None and row.at_rung is not None:
            value = row.at_rung.value
        if value is not None:
            found.append(_Placed(row, value))
    return found


def _legend(points: Sequence[Point]) -> list[tuple[Mark, str]]:
    """Return the marks that are drawn with their names; empty: all are of completed trials."""
    used = {point.mark for point in points}
    if used == {Mark.FILLED}:
        return []
    return [(mark, name) for mark, name in _NAMES.items() if mark in used]


def _best(report: Report, placed: Sequence[_Placed]) -> int | None:
    best = report.analysis.best
    numbers = [each.row.trial for each in placed]
    return numbers.index(best.trial) if best is not None else None


def _axis(label: str, dimension: Any, values: Sequence[Any]) -> tuple[Axis, list[float]]:
    """Return the axis of a field, and the places of its values on it."""
    if all(map(is_number, values)):
        low, high = min(values), max(values)
        is_log = (isinstance(dimension, dict) and "log" in dimension) or (
            low > 0 and high / low >= _WIDE
        )
        is_whole = all(isinstance(value, int) for value in values)
        kind = Kind.LOG if is_log else Kind.LINEAR
        return Axis(label, kind, is_whole=is_whole), [float(v) for v in values]
    listed = dimension if isinstance(dimension, list) else values
    keys = list(dict.fromkeys(map(repr, [*listed, *values])))
    texts = {repr(value): value_text(value) for value in [*listed, *values]}
    axis = Axis(label, Kind.NAMES, tuple(texts[key] for key in keys))
    return axis, [float(keys.index(repr(value))) for value in values]
