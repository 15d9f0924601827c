"""The table of a benchmark as texts, for reports and commands; `—` where nothing was measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainhall.cluster.experiments.analysis.text import value_text
from trainhall.training.common.units import MISSING, brief, figure, percent, size_text

Row = Mapping[str, Any]
"""Data of a `BenchmarkRow` as JSON has it."""

_CELL = {
    "strategy": ("parallelism.strategy", "strategy"),
    "workers": ("resources.workers", "workers"),
    "precision": ("training.precision", "precision"),
    "batch_size": ("training.global_batch_size", "batch"),
    "compression": ("parallelism.gradient_sync.compression", "compression"),
}
"""Field of the job spec and title, by the key of a row."""


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Row], str]
    right: bool = True


def benchmark_columns(rows: Sequence[Row], labels: Mapping[str, str], metric: str) -> list[Column]:
    """Return the columns of a table of rows: what they differ in, and figures.

    Args:
        labels: short names of the fields that vary.
        metric: the objective.
    """
    objective = (
        [] if metric == "samples_per_second" else [_with_spread("objective", metric, figure)]
    )
    ratio = [Column("vs baseline", _ratio)] if any(row["is_baseline"] for row in rows) else []
    optional = [column for name, column in _OPTIONAL.items() if _is_known(rows, name)]
    return [
        *_differing(rows, labels), *objective,
        _with_spread("samples_per_second", "samples/s", figure), *ratio, *optional,
        *_FIGURES, *_predictions(rows),
        Column("runs", _runs), _text("state", "state"), Column("reason", _reason, right=False),
    ]  # fmt: skip


def common_text(rows: Sequence[Row], labels: Mapping[str, str]) -> str:
    """Return what all rows have in common and no column shows, as `strategy ddp, workers 2`."""
    shown = {column.title for column in _differing(rows, labels)}
    common = [column for column in _cell_columns(rows, labels) if column.title not in shown]
    return ", ".join(f"{column.title} {column.cell(rows[0])}" for column in common)


def _differing(rows: Sequence[Row], labels: Mapping[str, str]) -> list[Column]:
    """Return the columns of the cell in which rows differ; of a single row all."""
    columns = _cell_columns(rows, labels)
    if len(rows) < 2:
        return columns
    return [column for column in columns if len(set(map(column.cell, rows))) > 1]


def _predictions(rows: Sequence[Row]) -> list[Column]:
    plans = [row["predicted"] for row in rows if row["predicted"] is not None]
    # On a CPU the memory is that of whole processes, which nothing predicts.
    has_memory = any(plan["measured_memory_bytes"] is not None for plan in plans)
    return [*([_PREDICTED_STEP] if plans else []), *([_PREDICTED_MEMORY] if has_memory else [])]


def communication_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows whose communication is compared; empty: no bytes are counted."""
    return [row for row in rows if row["compares_communication"]]


def communication_columns(rows: Sequence[Row], labels: Mapping[str, str]) -> list[Column]:
    """Return the columns of a table of `communication_rows`: what they differ in, and figures.

    Args:
        labels: short names of the fields that vary.
    """
    return [*_differing(rows, labels), *_COMMUNICATION, Column("speed-up", _speedup)]


def _cell_columns(rows: Sequence[Row], labels: Mapping[str, str]) -> list[Column]:
    fields = {field for field, _ in _CELL.values()}
    others = [_value(field, label) for field, label in labels.items() if field not in fields]
    cell = [_text(name, title) for name, (_, title) in _CELL.items() if _is_known(rows, name)]
    return [*cell, *others]


def _is_known(rows: Sequence[Row], name: str) -> bool:
    return any(row[name] is not None for row in rows)


def _value(field: str, label: str) -> Column:
    return Column(label, lambda row: value_text(row["values"].get(field)), right=False)


def _text(name: str, title: str) -> Column:
    return Column(title, lambda row: MISSING if row[name] is None else str(row[name]), right=False)


def _figure(name: str, title: str, text: Callable[[float], str]) -> Column:
    return Column(title, lambda row: MISSING if row[name] is None else text(row[name]))


def _with_spread(name: str, title: str, text: Callable[[float], str]) -> Column:
    def cell(row: Row) -> str:
        if row[name] is None:
            return MISSING
        if (ends := row["spread"].get(name)) is None:
            return text(row[name])
        low, high = map(text, ends)
        return f"{text(row[name])} ({low} to {high})"

    return Column(title, cell)


def _ratio(row: Row) -> str:
    return _times_baseline(row, "ratio", "verdict")


def _speedup(row: Row) -> str:
    return _times_baseline(row, "speedup", "speedup_verdict")


def _times_baseline(row: Row, name: str, verdict: str) -> str:
    if row["is_baseline"]:
        return "baseline"
    if row[name] is None:
        return MISSING
    text = f"{row[name]:.3g} ×"
    if (interval := row[f"{name}_interval"]) is not None:
        low, high = interval
        text += f" ({low:.3g} to {high:.3g})"
    return f"{text}, no difference shown" if row[verdict] == "no_difference" else text


def _predicted(name: str, title: str, text: Callable[[float], str]) -> Column:
    def cell(row: Row) -> str:
        return MISSING if row["predicted"] is None else text(row["predicted"][name])

    return Column(f"predicted {title}", cell)


def _runs(row: Row) -> str:
    same = row["completed"] == row["runs"]
    return str(row["runs"]) if same else f"{row['completed']} of {row['runs']}"


def _reason(row: Row) -> str:
    texts = [row["reason"], *row["interruptions"]]
    if row["shared_with"] and not row["reason"]:
        texts.append(f"shared hosts with {', '.join(row['shared_with'])}")
    return "; ".join(filter(None, texts))


_FIGURES = (
    _figure("step_seconds", "step", brief),
    _figure("step_seconds_p95", "p95", brief),
    _figure("communication_share", "communication", percent),
    _figure("peak_memory_bytes", "memory", lambda value: size_text(int(value))),
    _figure("final_loss", "loss", figure),
)
_COMMUNICATION = (
    _figure("communication_bytes", "sent per step", lambda value: size_text(int(value))),
    _figure("bandwidth", "bandwidth", lambda value: f"{size_text(int(value))}/s"),
    _figure("latency_seconds", "latency", brief),
)
_OPTIONAL = {
    "tokens_per_second": _figure("tokens_per_second", "tokens/s", figure),
    "model_flops_utilization": _figure(
        "model_flops_utilization", "MFU", lambda value: percent(value / 100)
    ),
    "energy_per_sample": _figure("energy_per_sample", "J/sample", figure),
}
"""Figures that most benchmarks do not have."""
_PREDICTED_STEP = _predicted("step_seconds", "step", brief)
_PREDICTED_MEMORY = _predicted("peak_memory_bytes", "tensors", lambda value: size_text(int(value)))
