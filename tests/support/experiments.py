"""Rows of an experiment, as an analysis takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow, TrialRow, trial_rows
from trainhall.training.spec.recovery import MetricMode

RATE = "training.learning_rate"


def experiment(**changes: Any) -> ExperimentRow:
    given: dict[str, Any] = {
        "id": "7c0d93be12f4",
        "name": "rates",
        "state": "completed",
        "is_finished": True,
        "metric": "eval_accuracy",
        "goal": MetricMode.MAX,
        "space": {RATE: [0.1, 0.2, 0.3]},
    }
    return ExperimentRow(**{**given, **changes})


def runs(trial: int, values: Mapping[str, Any], *objectives: float | None) -> list[RunRow]:
    """Runs of a trial, one for each objective; those without one have failed."""
    return [
        RunRow(
            trial=trial,
            repeat=repeat,
            values=values,
            state="failed" if objective is None else "completed",
            job_id=f"{trial:06x}{repeat:06x}",
            reason="" if objective is not None else "rank 0 was killed",
            objective=objective,
            device_seconds=3600.0,
        )
        for repeat, objective in enumerate(objectives, 1)
    ]


def trials_of(*objectives: Sequence[float | None]) -> list[TrialRow]:
    """Trials with these objectives, numbered from 1; each has a learning rate of its own."""
    return trial_rows(
        run
        for number, given in enumerate(objectives, 1)
        for run in runs(number, {RATE: number / 10}, *given)
    )
