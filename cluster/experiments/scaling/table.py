"""The table of a scaling curve as texts, for reports and commands."""

from collections.abc import Callable, Mapping
from typing import Any

from trainhall.cluster.experiments.analysis.text import value_text
from trainhall.cluster.experiments.benchmark.table import Column
from trainhall.training.common.units import MISSING, brief, figure, percent

Point = Mapping[str, Any]
"""Data of a `ScalingPoint` as JSON has it."""


def curve_name(scaling: str, values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the name of a curve, as `Strong scaling, strategy ddp`.

    Args:
        labels: short names of the fields that vary.
    """
    others = [f"{labels.get(field, field)} {value_text(value)}" for field, value in values.items()]
    return ", ".join([f"{scaling.capitalize()} scaling", *others])


def kind_of(point: Point) -> str:
    if point["is_predicted"]:
        return "predicted"
    return "measured, shared cores" if point["shares_cores"] else "measured"


def scaling_columns(metric: str) -> list[Column]:
    """Return the columns of a table of points.

    Args:
        metric: the objective.
    """
    speed = "samples/s" if metric == "samples_per_second" else metric
    return [
        Column("workers", lambda point: f"{point['workers']:,}"),
        Column("point", kind_of, right=False),
        _optional("batch_size", "batch", lambda size: f"{size:,}"),
        Column(speed, lambda point: figure(point["speed"])),
        Column("speed-up", _speedup),
        Column("efficiency", lambda point: percent(point["efficiency"])),
        _optional("compute_seconds", "compute", brief),
        _optional("data_seconds", "data", brief),
        _optional("communication_seconds", "communication", brief),
    ]


def _speedup(point: Point) -> str:
    text = f"{figure(point['speedup'])} ×"
    if point["speedup_interval"] is None:
        return text
    low, high = point["speedup_interval"]
    return f"{text} ({figure(low)} to {figure(high)})"


def _optional(name: str, title: str, text: Callable[[Any], str]) -> Column:
    return Column(title, lambda point: MISSING if point[name] is None else text(point[name]))
