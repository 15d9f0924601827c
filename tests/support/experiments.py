"""Experiments of tests: a sweep on a simulated cluster, and rows as an analysis takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.experiments import views
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow, TrialRow, trial_rows
from trainhall.training.spec.recovery import MetricMode

RATE = "training.learning_rate"
SWEEP: dict[str, Any] = {
    "name": "rates",
    "kind": "sweep",
    "job": {
        "name": "digits",
        "task": {"name": "synthetic"},
        "training": {"steps": 100},
        "recovery": {"max_restarts": 0},
    },
    "space": {RATE: [0.1, 0.2, 0.3]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
    "parallel": 3,
}


async def read(cluster: SimulatedCluster, experiment_id: str) -> views.Experiment:
    return await cluster.coordinator.experiments.get(experiment_id)


async def trials(cluster: SimulatedCluster, experiment_id: str) -> list[views.Trial]:
    return (await cluster.coordinator.experiments.trials(experiment_id, limit=1000)).items


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
