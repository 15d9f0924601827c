"""The objective of a run, and the best configuration of an experiment."""

import difflib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.analysis.figures import after_warmup
from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.lifecycle.states import TrialState
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Attempt, JobProgress
from trainhall.monitoring.chunks import Run
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.spec.recovery import MetricMode

_LISTED = 12
"""Most metrics that a reason lists."""
_EVERY_POINT = 2**62
_SAMPLED_POINTS = 4096
"""Most points that a median is of; a longer series has every n-th."""


@dataclass(frozen=True)
class Objective:
    """The value that rates a run."""

    metric: str
    goal: str
    at: str
    warmup_steps: int = 0

    @classmethod
    def of(cls, experiment: Experiment) -> "Objective":
        warmup_steps = experiment.spec.get("warmup_steps", 0)
        return cls(experiment.metric, experiment.goal, experiment.objective_at, warmup_steps)


@dataclass(frozen=True)
class BestTrial:
    trial: int
    job_id: str | None
    values: dict[str, Any]
    value: float
    """Mean over the repeats."""


async def read_objective(
    database: Database, job_id: str, objective: Objective, to_step: int | None = None
) -> float | None:
    """Return the value that rates a job, at its end or at a step; None: it has no finite one."""
    metric, goal = objective.metric, objective.goal
    if objective.at == "best":
        return await _best_value(database, job_id, metric, goal, to_step)
    if objective.at == "median":
        return await _median_value(database, job_id, objective, to_step)
    if to_step is not None:
        return await _value_at(database, job_id, metric, to_step)
    async with database.session() as session:
        metrics = await session.scalar(
            select(JobProgress.metrics).where(JobProgress.job_id == job_id)
        )
    value = (metrics or {}).get(metric)
    # NaN and infinities are kept as text.
    return float(value) if isinstance(value, int | float) else None


async def _best_value(
    database: Database, job_id: str, metric: str, goal: str, to_step: int | None
) -> float | None:
    # One entry has the extremes of all points; of every point only where one is infinite.
    for max_points in (1, _EVERY_POINT):
        run = await _job_wide(database, job_id, metric, to_step, max_points)
        values = run.low if goal == MetricMode.MIN else run.high
        values = values[np.isfinite(values)]
        if len(values):
            return float(values.min() if goal == MetricMode.MIN else values.max())
    return None


async def _median_value(
    database: Database, job_id: str, objective: Objective, to_step: int | None
) -> float | None:
    """Return the median of the values after the warm-up of each attempt."""
    run = await _job_wide(database, job_id, objective.metric, to_step, _SAMPLED_POINTS)
    async with database.session() as session:
        starts = await session.scalars(select(Attempt.first_step).where(Attempt.job_id == job_id))
    values = run.last[after_warmup(run.steps, starts, objective.warmup_steps)]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None


async def _value_at(database: Database, job_id: str, metric: str, step: int) -> float | None:
    """Return the last value at or before a step."""
    last = (await _job_wide(database, job_id, metric, step, 1)).last
    return float(last[-1]) if len(last) and np.isfinite(last[-1]) else None


async def _job_wide(
    database: Database, job_id: str, metric: str, to_step: int | None, max_points: int
) -> Run:
    found = await read_metrics(database, job_id, [metric], to_step=to_step, max_points=max_points)
    return next((series.run for series in found if series.rank is None), Run.empty())


def missing_objective(metric: str, reported: Mapping[str, Any]) -> str:
    """Return why a completed job has no objective, with its metrics by name."""
    if metric in reported:
        return f"{metric} has no finite value"
    if not reported:
        return "it reports no metric"
    names = ", ".join(sorted(reported)[:_LISTED]) + (", …" if len(reported) > _LISTED else "")
    group, slash, _ = metric.partition("/")
    of_group = [name for name in reported if slash and name.startswith(f"{group}/")]
    near = difflib.get_close_matches(metric, reported, n=1)
    if not near and len(of_group) == 1:
        near = of_group
    return f"it reports {names}, not {metric}" + (f"; did you mean {near[0]}?" if near else "")


async def best_trials(
    session: AsyncSession, experiments: Sequence[Experiment]
) -> dict[str, BestTrial]:
    """Return the best configuration of each experiment by its id. One that has a repeat without a
    value does not count."""
    by_id = {experiment.id: experiment for experiment in experiments}
    best: dict[str, tuple[float, tuple[str, int, int]]] = {}
    for (experiment_id, number), values in (await _rated_runs(session, by_id)).items():
        experiment = by_id[experiment_id]
        if len(values) < experiment.spec.get("repeats", 1):
            continue
        sign = 1 if experiment.goal == MetricMode.MIN else -1
        mean = mean_of_repeats(values.values())
        if experiment_id not in best or sign * mean < sign * best[experiment_id][0]:
            _, repeat = min((sign * value, repeat) for repeat, value in values.items())
            best[experiment_id] = mean, (experiment_id, number, repeat)
    if not best:
        return {}
    place = tuple_(Trial.experiment_id, Trial.number, Trial.repeat)
    trials = await session.scalars(select(Trial).where(place.in_([at for _, at in best.values()])))
    return {
        trial.experiment_id: BestTrial(
            trial.number, trial.job_id, trial.values, best[trial.experiment_id][0]
        )
        for trial in trials
    }


async def _rated_runs(
    session: AsyncSession, experiments: Collection[str]
) -> dict[tuple[str, int], dict[int, float]]:
    """Return the objectives of each configuration, in its order, by repeat."""
    # Not averaged in SQL: for its variance Postgres squares the values, and refuses 1e200.
    rows = await session.execute(
        select(Trial.experiment_id, Trial.number, Trial.repeat, Trial.objective)
        .where(
            Trial.experiment_id.in_(experiments),
            Trial.state == TrialState.COMPLETED.value,
            Trial.objective.is_not(None),
        )
        .order_by(Trial.number, Trial.repeat)
    )
    found: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for experiment_id, number, repeat, objective in rows:
        assert objective is not None
        found[experiment_id, number][repeat] = objective
    return found
