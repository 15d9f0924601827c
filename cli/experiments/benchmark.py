"""The table of a benchmark, of `experiment analyze`, `experiment show` and `bench`."""

from collections.abc import Sequence

from trainhall.cli.base import output as out


def benchmark_table(rows: Sequence[out.Json], metric: str) -> str:
    """Draw a line for each cell.

    Args:
        rows: those of an analysis's `table`.
        metric: the objective.
    """
    from trainhall.cluster.experiments.analysis.rows import field_labels
    from trainhall.cluster.experiments.benchmark.table import benchmark_columns

    labels = field_labels(rows[0]["values"]) if rows else {}
    columns = [
        out.Column(column.title.upper(), column.cell, right=column.right)
        for column in benchmark_columns(rows, labels, metric)
    ]
    return out.table(list(rows), columns)


def benchmark_csv(rows: Sequence[out.Json]) -> str:
    """Return a line for each cell; a figure that was not measured is empty."""
    from trainhall.cluster.csv_text import csv_text

    nested = ("values", "spread", "predicted", "ratio_interval")
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
