"""Findings of a benchmark: one verdict for each pair of combinations."""

from typing import Any

import pytest
from support.experiments import experiment, runs

from trainhall.cluster.experiments.analysis.rows import rated
from trainhall.cluster.experiments.benchmark.findings import benchmark_findings
from trainhall.cluster.experiments.benchmark.rows import benchmark_rows, cell_trials

WORKERS = "resources.workers"
JOB: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}
SPEEDS = [
    (73_690.0, 115_800.0, 103_200.0),
    (31_070.0, 35_790.0, 35_400.0),
    (4085.0, 5190.0, 4500.0),
]


def findings(baseline: int | None) -> list[str]:
    listed = [run for i, given in enumerate(SPEEDS, 1) for run in runs(i, {WORKERS: i}, *given)]
    trials = cell_trials(JOB, listed)
    given = experiment(metric="samples_per_second", space={WORKERS: [1, 2, 3]})
    spec = {"job": JOB, "baseline": baseline and {WORKERS: baseline}}
    rows = benchmark_rows(spec, trials, given.sign)
    return benchmark_findings(given, trials, rated(trials, given.sign), rows)


@pytest.mark.parametrize(("baseline", "is_compared"), [(1, False), (2, False), (3, True)])
def test_baseline_is_compared_once(baseline: int, is_compared: bool) -> None:
    found = findings(baseline)
    assert any("the runner-up" in text for text in found) == is_compared
    assert sum("× the baseline" in text for text in found) == 2


def test_runner_up_is_compared_without_a_baseline() -> None:
    assert any("the runner-up" in text for text in findings(None))
