"""Rows of a benchmark: cells, figures after the warm-up, and ratios to the baseline."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.experiments import runs

from trainhall.cluster.experiments.analysis.figures import (
    Distribution,
    after_warmup,
    distributions,
    speed_figures,
)
from trainhall.cluster.experiments.analysis.rows import RunRow
from trainhall.cluster.experiments.benchmark.cell import Cell, cell_of
from trainhall.cluster.experiments.benchmark.rows import benchmark_rows, cell_trials
from trainhall.cluster.experiments.benchmark.table import (
    benchmark_columns,
    common_text,
    communication_columns,
    communication_rows,
)

WORKERS = "resources.workers"
JOB: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}


def rows(
    *speeds: tuple[float | None, ...], sign: int = -1, job: dict[str, Any] | None = None
) -> list[Any]:
    found: list[RunRow] = []
    for number, given in enumerate(speeds, 1):
        for run in runs(number, {WORKERS: number}, *given):
            figures = {"samples_per_second": run.objective}
            found.append(RunRow(**{**vars(run), "figures": figures}))
    spec = {"job": job or JOB, "baseline": {WORKERS: 1}}
    return benchmark_rows(spec, cell_trials(spec["job"], found), sign)


def test_warmup_of_each_attempt_is_left_out() -> None:
    steps = np.arange(1, 21)
    assert steps[after_warmup(steps, [1, 11], 3)].tolist() == [*range(4, 11), *range(14, 21)]
    assert steps[after_warmup(steps, [None], 18)].tolist() == [19, 20]
    assert steps[after_warmup(steps, [1], 0)].tolist() == steps.tolist()
    assert not len(after_warmup(steps[:0], [None], 3))


def test_figures_are_of_what_was_measured() -> None:
    assert speed_figures({}) == {}
    found = distributions(
        {
            "step_seconds": np.array([*range(21), np.nan]),
            "communication_seconds": np.array([2.5]),
            "data_seconds": np.array([np.inf]),
        }
    )
    assert found["step_seconds"] == Distribution(median=10.0, p95=19.0, mean=10.0)
    assert speed_figures(found) == {
        "step_seconds": 10.0, "step_seconds_p95": 19.0, "communication_share": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize(("hidden", "latency"), [(1.0, 3.0), (np.nan, None)])
def test_latency_needs_the_hidden_time_of_each_step(hidden: float, latency: float | None) -> None:
    found = distributions(
        {
            "communication_seconds": np.array([1.0, 2.0, 3.0]),
            "communication_hidden_seconds": np.array([1.0, 1.0, hidden]),
        }
    )
    assert speed_figures(found).get("latency_seconds") == latency


def test_cell_is_read_from_any_document() -> None:
    assert cell_of(JOB) == Cell("ddp", 1, "fp32", 64, "none")
    job = {
        "task": {"name": "language_model", "params": {"size": "tiny"}},
        "resources": {"min_workers": 1, "max_workers": 4},
        "parallelism": {"strategy": "fsdp", "gradient_sync": {"compression": "fp16"}},
        "training": {"precision": "bf16", "global_batch_size": 10},
    }
    assert cell_of(job) == Cell("fsdp", 4, "bf16", 10, "fp16", tokens_per_sample=64)
    assert cell_of({"script": {"path": "/a.py"}}) == Cell(workers=1)
    assert cell_of({"task": {"name": "digits"}, "parallelism": 3}).strategy == "ddp"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (WORKERS, "two"),
        ("resources.max_workers", "two"),
        ("parallelism.strategy", 2),
        ("training.precision", 16),
        ("training.global_batch_size", "64 samples"),
        ("parallelism.gradient_sync.compression", 0),
    ],
)
def test_value_of_a_wrong_type_leaves_a_row(field: str, value: Any) -> None:
    trials = cell_trials(JOB, runs(1, {field: value}, None))
    assert [row.values for row in benchmark_rows({"job": JOB}, trials, -1)] == [{field: value}]


def test_ratio_says_no_more_than_the_repeats_show() -> None:
    base, faster, same, slower, failed = rows(
        (100.0, 101.0, 99.0), (200.0, 202.0, 198.0), (98.0, 103.0, 100.0), (50.0, 51.0, 50.0),
        (None, 1.0, 1.0),
    )  # fmt: skip
    assert (base.is_baseline, base.ratio, base.verdict) == (True, None, None)
    assert (faster.ratio, faster.verdict) == (2.0, "better")
    assert faster.ratio_interval[0] < 2 < faster.ratio_interval[1]
    assert same.verdict == "no_difference"
    assert same.ratio_interval[0] < 1 < same.ratio_interval[1]
    assert slower.verdict == "worse"
    assert (failed.ratio, failed.verdict, failed.state) == (None, None, "failed")
    assert rows((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), sign=1)[1].verdict == "worse"


def test_single_runs_show_no_difference() -> None:
    _, other = rows((1.0,), (2.0,))
    assert (other.ratio, other.ratio_interval, other.verdict) == (2.0, None, "too_few_runs")
    _, other = rows((1.0, 1.1), (2.0, 2.1))
    assert other.verdict == "too_few_runs"
    assert other.ratio_interval is not None
    _, other = rows((0.0, 0.0, 0.0), (2.0, 2.0, 2.0))
    assert other.ratio is None


def test_tokens_are_counted_where_the_task_has_them() -> None:
    job = {"task": {"name": "language_model", "params": {"context": 32}}}
    assert [row.tokens_per_second for row in rows((10.0,), (None,), job=job)] == [320.0, None]
    assert rows((10.0,))[0].tokens_per_second is None


def test_table_has_a_dash_where_nothing_was_measured() -> None:
    found = [row.model_dump(mode="json") for row in rows((1.0, 1.2, 1.1), (None,))]
    columns = benchmark_columns(found, {WORKERS: "workers"}, "samples_per_second")
    first, second = ({column.title: column.cell(row) for column in columns} for row in found)
    assert first["samples/s"] == "1.1 (1 to 1.2)"
    assert (first["vs baseline"], second["vs baseline"]) == ("baseline", "—")
    assert (second["samples/s"], second["loss"], second["memory"]) == ("—", "—", "—")
    assert (second["workers"], second["runs"]) == ("2", "0 of 1")
    assert (second["state"], second["reason"]) == ("failed", "rank 0 was killed")
    assert not {"tokens/s", "MFU", "strategy"} & first.keys()
    common = common_text(found, {WORKERS: "workers"})
    assert common == "strategy ddp, precision fp32, batch 64, compression none"
    assert common_text(found[:1], {WORKERS: "workers"}) == ""


def test_speed_up_of_overlapping_runs_shows_no_difference() -> None:
    _, same, faster = rows((100.0, 101.0, 99.0), (98.0, 103.0, 100.0), (200.0, 202.0, 198.0))
    assert (same.speedup_verdict, faster.speedup_verdict) == ("no_difference", "better")
    (*_, column) = communication_columns([same.model_dump(mode="json")], {})
    assert column.cell(same.model_dump(mode="json")).endswith(", no difference shown")
    assert "no difference" not in column.cell(faster.model_dump(mode="json"))


def test_rows_that_communicate_are_compared_with_the_baseline() -> None:
    given = {1: {}, 2: {"communication_bytes": 2048.0}, 3: {"latency_seconds": 0.5}, 4: {}}
    for counted in (True, False):
        found = [
            RunRow(
                number, 1, {WORKERS: number}, "completed", objective=1.0,
                figures={k: v for k, v in figures.items() if counted or k != "communication_bytes"},
            )
            for number, figures in given.items()
        ]  # fmt: skip
        spec = {"job": JOB, "baseline": {WORKERS: 1}}
        table = [
            row.model_dump(mode="json") for row in benchmark_rows(spec, cell_trials(JOB, found), -1)
        ]
        trials = [row["trial"] for row in communication_rows(table)]
        assert trials == ([1, 2, 3] if counted else [])


def test_interrupted_run_is_named_in_its_row() -> None:
    whole, cut = runs(1, {WORKERS: 1}, 1.0, 1.0)
    cut = replace(
        cut, interruptions=("node b was lost", "node b was lost"), measured_attempts=(1, 2)
    )
    spec = {"job": JOB, "baseline": {WORKERS: 1}}
    (row,) = benchmark_rows(spec, cell_trials(JOB, [whole, cut]), -1)
    text = "repeat 2 interrupted: node b was lost; its figures are of attempts 1 and 2"
    assert row.interruptions == [text]
    table = [row.model_dump(mode="json")]
    *_, reason = benchmark_columns(table, {WORKERS: "workers"}, "samples_per_second")
    assert reason.cell(table[0]) == text
