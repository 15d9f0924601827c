"""The analysis of an experiment, put together from its rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from trainhall.cluster.experiments.analysis import views
from trainhall.cluster.experiments.analysis.comparisons import TrialComparison, compare
from trainhall.cluster.experiments.analysis.findings import findings
from trainhall.cluster.experiments.analysis.importance import Evaluate, importances
from trainhall.cluster.experiments.analysis.intervals import bounds_of, mean_interval
from trainhall.cluster.experiments.analysis.rows import (
    ENDED,
    ExperimentRow,
    RunRow,
    TrialRow,
    ranked_by_progress,
    rated,
    trial_rows,
)


def analyze(
    experiment: ExperimentRow, runs: Sequence[RunRow], now: datetime, evaluate: Evaluate
) -> views.Analysis:
    """Analyze an experiment as far as its runs have ended.

    Args:
        evaluate: the method that measures importance.
    """
    trials = trial_rows(runs)
    ranked = rated(trials, experiment.sign)
    compared = compare(experiment, ranked)
    importance = importances(
        experiment.space, ranked_by_progress(trials, experiment.sign), evaluate
    )
    return views.Analysis(
        **common_fields(experiment, runs, ranked, now),
        findings=findings(experiment, trials, ranked, compared, importance),
        comparisons=[_comparison(each) for each in compared],
        importance=views.ImportanceOfFields.of(importance),
        scaling=None,
        table=[views.AnalysisRow(**row_fields(trial, experiment.rungs)) for trial in trials],
    )


def common_fields(
    experiment: ExperimentRow, runs: Sequence[RunRow], ranked: Sequence[TrialRow], now: datetime
) -> dict[str, Any]:
    """Return the fields of an analysis that those of all kinds of experiments share.

    Args:
        ranked: trials that have an objective, the best first.
    """
    return {
        "experiment_id": experiment.id,
        "name": experiment.name,
        "state": experiment.state,
        "is_final": experiment.is_finished,
        "runs": len(runs),
        "ended": sum(run.state in ENDED for run in runs),
        "metric": experiment.metric,
        "goal": experiment.goal.value,
        "best": _best(ranked[0], experiment.metric, experiment.sign) if ranked else None,
        "device_hours": sum(run.device_seconds for run in runs) / 3600,
        "generated_at": now,
    }


def row_fields(trial: TrialRow, rungs: Sequence[int] = ()) -> dict[str, Any]:
    """Return the fields of a row that those of all kinds of experiments share.

    Args:
        rungs: steps of the experiment's rungs.
    """
    at_rung = None
    if trial.at_rung is not None:
        reached, value = trial.at_rung
        at_rung = views.RungResult(step=rungs[reached - 1], value=value)
    return {
        "trial": trial.trial,
        "values": dict(trial.values),
        "state": trial.state,
        "reason": trial.reason,
        "runs": len(trial.runs),
        "completed": sum(run.state == "completed" for run in trial.runs),
        "objective": trial.objective,
        "at_rung": at_rung,
        **trial.figures,
        "spread": {name: list(ends) for name, ends in trial.spread.items()},
    }


def _best(trial: TrialRow, metric: str, sign: int) -> views.AnalysisBest:
    assert trial.objective is not None
    best = min(
        (run for run in trial.runs if run.objective is not None),
        key=lambda run: (sign * (run.objective or 0.0), run.repeat),
    )
    return views.AnalysisBest.of(
        trial,
        job_id=best.job_id,
        value=trial.objective,
        interval=mean_interval(trial.objectives, bounds_of(metric, trial.objectives)),
        runs=len(trial.runs),
    )


def _comparison(compared: TrialComparison) -> views.Comparison:
    return views.Comparison.of(
        compared,
        trial=compared.best.trial,
        other=compared.other.trial,
        value=compared.other.values[compared.field] if compared.field is not None else None,
    )
