"""The analysis of a benchmark, put together from its runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainhall.cluster.experiments.analysis import views
from trainhall.cluster.experiments.analysis.analyze import common_fields
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow, rated
from trainhall.cluster.experiments.benchmark.findings import benchmark_findings
from trainhall.cluster.experiments.benchmark.rows import benchmark_rows, cell_trials


def analyze_benchmark(
    experiment: ExperimentRow, spec: Mapping[str, Any], runs: Sequence[RunRow], now: datetime
) -> views.Analysis:
    """Analyze a benchmark as far as its runs have ended.

    Args:
        spec: document of the experiment.
    """
    trials = cell_trials(spec["job"], runs)
    ranked = rated(trials, experiment.sign)
    rows = benchmark_rows(spec, trials, experiment.sign)
    return views.Analysis(
        **common_fields(experiment, runs, ranked, now),
        findings=benchmark_findings(experiment, trials, ranked, rows),
        comparisons=[],
        importance=views.ImportanceOfFields(fields=[], note=""),
        scaling=None,
        table=rows,
    )
