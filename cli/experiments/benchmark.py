"""Tables of speeds, of `experiment analyze`, `experiment show` and `bench`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainhall.cli.base import output as out

if TYPE_CHECKING:
    from trainhall.cluster.experiments.benchmark.table import Column


def benchmark_table(rows: Sequence[out.Json], metric: str) -> str:
    """Draw a line for each cell.

    Args:
        rows: those of an analysis's `table`.
        metric: the objective.
    """
    from trainhall.cluster.experiments.analysis.rows import field_labels
    from trainhall.cluster.experiments.benchmark.table import benchmark_columns, common_text

    labels = field_labels(rows[0]["values"]) if rows else {}
    table = _table(rows, benchmark_columns(rows, labels, metric))
    common = common_text(rows, labels) if rows else ""
    return f"{table}\nAll rows: {common}" if common else table


def communication_table(rows: Sequence[out.Json]) -> str:
    """Draw a line for each cell that communicates; empty: none does.

    Args:
        rows: those of an analysis's `table`.
    """
    from trainhall.cluster.experiments.analysis.rows import field_labels
    from trainhall.cluster.experiments.benchmark.table import (
        communication_columns,
        communication_rows,
    )

    if not (found := communication_rows(rows)):
        return ""
    columns = communication_columns(found, field_labels(found[0]["values"]))
    return f"Communication\n{_table(found, columns)}"


def speed_tables(analysis: out.Json) -> str:
    """Draw the table of the cells, and of a scaling study one for each curve."""
    metric = analysis["metric"]
    fields = list(analysis["table"][0]["values"]) if analysis["table"] else []
    tables = [
        benchmark_table(analysis["table"], metric),
        communication_table(analysis["table"]),
        *(scaling_table(curve, fields, metric) for curve in analysis["scaling"] or ()),
    ]
    return "\n\n".join(filter(None, tables))


def scaling_table(curve: out.Json, fields: Sequence[str], metric: str) -> str:
    """Draw a line for each point.

    Args:
        fields: all that vary.
        metric: the objective.
    """
    from trainhall.cluster.experiments.analysis.rows import field_labels
    from trainhall.cluster.experiments.scaling.table import curve_name, scaling_columns

    name = curve_name(curve["scaling"], curve["values"], field_labels(fields))
    return f"{name}\n{_table(curve['points'], scaling_columns(metric))}"


def _table(rows: Iterable[Mapping[str, Any]], columns: Iterable["Column"]) -> str:
    drawn = [out.Column(each.title.upper(), each.cell, right=each.right) for each in columns]
    return out.table([*map(dict, rows)], drawn)


def benchmark_csv(rows: Sequence[out.Json]) -> str:
    """Return a line for each cell; a figure that was not measured is empty."""
    from trainhall.cluster.csv_text import csv_text

    nested = (
        "values", "at_rung", "spread", "predicted", "ratio_interval", "speedup_interval",
        "interruptions",
    )  # fmt: skip
    plain = [name for name in rows[0] if name not in nested] if rows else []
    others = list(rows[0]["values"]) if rows else []
    spread = ("samples_per_second", "step_seconds")
    titles = [*plain, *others, *(f"{name}_{end}" for name in spread for end in ("low", "high"))]
    lines = [
        [
            *(row[name] for name in plain),
            *(row["values"][field] for field in others),
            *(end for name in spread for end in row["spread"].get(name, (None, None))),
        ]
        for row in rows
    ]
    return csv_text([titles, *lines])
