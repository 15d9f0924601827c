"""Texts and figures that the formats of a report share."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from trainhall import __version__
from trainhall.cluster.durations import format_duration
from trainhall.cluster.experiments.analysis.rows import field_labels
from trainhall.cluster.experiments.analysis.text import count, value_text
from trainhall.cluster.experiments.analysis.views import Analysis, AnalysisRow
from trainhall.cluster.experiments.benchmark.table import (
    Column,
    benchmark_columns,
    common_text,
    communication_columns,
    communication_rows,
)
from trainhall.cluster.experiments.scaling.table import curve_name, scaling_columns
from trainhall.cluster.experiments.spec import SPEED_KINDS
from trainhall.db.views import rfc3339
from trainhall.training.common.units import MISSING, brief, figure, size_text


@dataclass(frozen=True)
class Report:
    analysis: Analysis
    spec: Mapping[str, Any]
    """Document of the experiment, with its defaults."""
    hosts: Sequence[tuple[str, str]] = ()
    """Names and texts of the place and time of its runs."""

    @property
    def has_cells(self) -> bool:
        """Return whether the rows of its table are cells of a matrix."""
        return self.spec["kind"] in SPEED_KINDS

    @property
    def labels(self) -> dict[str, str]:
        """Short names of the fields that vary."""
        return field_labels(self.spec["space"])


def summary(report: Report) -> list[tuple[str, str]]:
    """Return what describes the experiment, as names and texts."""
    analysis, spec = report.analysis, report.spec
    rows = [
        ("experiment", f"{analysis.name} ({analysis.experiment_id})"),
        ("kind", f"{spec['kind']}, {spec['method']}"),
        ("state", analysis.state),
        ("objective", f"{analysis.goal} {analysis.metric}, {spec['objective']['at']} value"),
        (
            "runs",
            f"{count(len(analysis.table), 'trial')}, {count(analysis.runs, 'run')}, "
            f"{analysis.ended:,} ended",
        ),
        ("generated", rfc3339(analysis.generated_at)[:19].replace("T", " ") + " UTC"),
    ]
    if analysis.best is not None:
        rows.insert(3, ("best", f"trial {analysis.best.trial}, {figure(analysis.best.value)}"))
    return rows


def columns(report: Report) -> list[str]:
    """Return the titles of the table of trials."""
    if report.has_cells:
        return [column.title for column in _benchmark_columns(report)]
    measured = [title for name, title, _ in _FIGURES if _is_measured(report, name)]
    metric = report.analysis.metric
    return ["trial", *report.labels.values(), "state", "runs", metric, *measured]


def cells(report: Report, row: AnalysisRow) -> list[str]:
    """Return the texts of a row of the table of trials."""
    if report.has_cells:
        return [column.cell(row.model_dump()) for column in _benchmark_columns(report)]
    values = [
        value_text(row.values[field]) if field in row.values else MISSING for field in report.labels
    ]
    measured = [
        MISSING if (value := getattr(row, name)) is None else text(value)
        for name, _, text in _FIGURES
        if _is_measured(report, name)
    ]
    runs = str(row.runs) if row.completed == row.runs else f"{row.completed} of {row.runs}"
    return [str(row.trial), *values, row.state, runs, _objective(row), *measured]


def _benchmark_columns(report: Report) -> list[Column]:
    rows = [row.model_dump() for row in report.analysis.table]
    return benchmark_columns(rows, report.labels, report.analysis.metric)


@dataclass(frozen=True)
class Table:
    """A table as texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    predicted: frozenset[int] = frozenset()
    """Indexes of the rows that are predicted."""


def _table(title: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        title,
        [column.title for column in columns],
        [[column.cell(row) for column in columns] for row in rows],
    )


def communication_table(report: Report) -> Table | None:
    """Return the table of what the cells of a benchmark communicate; None: none does."""
    if not report.has_cells:
        return None
    rows = communication_rows(row.model_dump() for row in report.analysis.table)
    return (
        _table("Communication", communication_columns(rows, report.labels), rows) if rows else None
    )


COMMUNICATION_NOTE = (
    "Sent per step: bytes that rank 0 sends to combine gradients, counted by the engine; those of "
    "Gloo's and NCCL's own collectives as of a ring. Latency: median time of communication in a "
    "step, waited for or hidden behind computation. Bandwidth: the one by the other. Speed-up: "
    "samples/s over the baseline's. A dash is not measured."
)


def curve_tables(report: Report) -> Iterator[Table]:
    """Yield a table for each curve of a scaling study."""
    columns = scaling_columns(report.analysis.metric)
    for curve in report.analysis.scaling or ():
        points = [point.model_dump() for point in curve.points]
        predicted = frozenset(i for i, each in enumerate(curve.points) if each.is_predicted)
        name = curve_name(curve.scaling, curve.values, report.labels)
        yield replace(_table(name, columns, points), predicted=predicted)


def environment(report: Report) -> list[tuple[str, str]]:
    """Return where and when it ran, and the versions on the coordinator's host."""
    return [
        *report.hosts,
        ("Trainhall", __version__),
        ("Python of the coordinator", platform.python_version()),
    ]


def note(report: Report) -> str:
    """Return what is to be known of the table of trials; empty: nothing."""
    analysis = report.analysis
    if not analysis.ended:
        return "No run has ended yet, so nothing is measured."
    texts = []
    if any(row.at_rung is not None for row in analysis.table):
        texts.append(
            "“At step”: the value of a trial that has not completed, at its last rung of early "
            f"stopping. It is not compared with the {analysis.metric} of a completed one."
        )
    if any(row.samples_per_second is not None and row.runs > 1 for row in analysis.table):
        texts.append(
            "Speeds and step times are medians over the steps of a run, of several runs the mean: "
            "one mean is not the batch divided by the other."
        )
    if common := _common(report):
        texts.append(f"All rows: {common}.")
    return " ".join(texts)


def _common(report: Report) -> str:
    """Return what the rows of a benchmark have in common; empty: nothing, or it is none."""
    rows = [row.model_dump() for row in report.analysis.table] if report.has_cells else []
    return common_text(rows, report.labels) if rows else ""


def spec_yaml(report: Report) -> str:
    """Return the experiment as it can be created again."""
    given = {key: value for key, value in report.spec.items() if value is not None}
    text: str = yaml.safe_dump(given, sort_keys=False, allow_unicode=True)
    return text


COMMANDS = (
    "trainhall experiment create experiment.yaml -f   # prints the ID",
    "trainhall experiment analyze ID",
    "trainhall experiment report ID --format html --output report.html",
)
"""They repeat the experiment, as another one, and its report."""


def _objective(row: AnalysisRow) -> str:
    if row.objective is None:
        return _at_rung(row)
    if (ends := row.spread.get("objective")) is None:
        return figure(row.objective)
    return f"{figure(row.objective)} ({figure(ends[0])} to {figure(ends[1])})"


def _at_rung(row: AnalysisRow) -> str:
    if row.at_rung is None or row.at_rung.value is None:
        return MISSING
    return f"{figure(row.at_rung.value)} at step {row.at_rung.step:,}"


def _is_measured(report: Report, name: str) -> bool:
    return any(getattr(row, name) is not None for row in report.analysis.table)


_FIGURES = (
    ("samples_per_second", "samples/s", figure),
    ("step_seconds", "step time", brief),
    ("peak_memory_bytes", "peak memory", lambda value: size_text(int(value))),
    ("steps", "steps", lambda value: f"{value:,.0f}"),
    ("duration_seconds", "duration", format_duration),
)
"""Figures of a row with their titles and how they are written."""
