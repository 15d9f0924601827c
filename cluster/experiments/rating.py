"""The objective of a run, and the best configuration of an experiment."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import JobProgress
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.spec.recovery import MetricMode

_LISTED = 12
"""Most metrics that a reason lists."""


@dataclass(frozen=True)
class BestTrial:
    trial: int
    job_id: str | None
    values: dict[str, Any]
    value: float
    """Mean over the repeats."""


async def read_objective(
    database: Database, job_id: str, metric: str, goal: str, at: str
) -> float | None:
    """Return the value that rates a completed job; None if it reported no finite one."""
    if at == "last":
        async with database.session() as session:
            metrics = await session.scalar(
                select(JobProgress.metrics).where(JobProgress.job_id == job_id)
            )
        value = (metrics or {}).get(metric)
    else:
        found = await read_metrics(database, job_id, [metric], max_points=1)
        run = next((series.run for series in found if series.rank is None), None)
        if run is None:
            return None
        value = float(run.low.min() if goal == MetricMode.MIN else run.high.max())
    # Neither NaN nor infinity, which are kept as text, is better than another value.
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


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
    means = await session.execute(
        select(Trial.experiment_id, Trial.number, func.avg(Trial.objective).label("mean"))
        .where(Trial.experiment_id.in_([experiment.id for experiment in experiments]))
        .group_by(Trial.experiment_id, Trial.number)
        .having(func.count(Trial.objective) == func.count())
        .order_by(Trial.number)
    )
    signs = {e.id: 1.0 if e.goal == MetricMode.MIN else -1.0 for e in experiments}
    best: dict[str, tuple[int, float]] = {}
    for row in means:
        sign, known = signs[row.experiment_id], best.get(row.experiment_id)
        if known is None or sign * row.mean < sign * known[1]:
            best[row.experiment_id] = (row.number, row.mean)
    return await _with_runs(session, best, signs)


async def _with_runs(
    session: AsyncSession, best: dict[str, tuple[int, float]], signs: dict[str, float]
) -> dict[str, BestTrial]:
    """Add what is known of the best repeat of each."""
    keys = [(experiment_id, number) for experiment_id, (number, _) in best.items()]
    if not keys:
        return {}
    rows = await session.scalars(
        select(Trial)
        .where(tuple_(Trial.experiment_id, Trial.number).in_(keys))
        .order_by(Trial.repeat)
    )
    runs: dict[str, list[Trial]] = {}
    for trial in rows:
        runs.setdefault(trial.experiment_id, []).append(trial)
    found = {}
    for experiment_id, trials in runs.items():
        sign = signs[experiment_id]
        first = min(trials, key=lambda trial: sign * (trial.objective or 0.0))
        number, mean = best[experiment_id]
        found[experiment_id] = BestTrial(number, first.job_id, first.values, mean)
    return found
