"""The objective of a run, and the best configuration of an experiment."""

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from sqlalchemy import Select, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.arrays import np
from trainhall.cluster.experiments.analysis.figures import after_warmup
from trainhall.cluster.experiments.means import mean_at_rung, mean_of_repeats
from trainhall.cluster.experiments.spec import rungs_of
from trainhall.cluster.lifecycle.states import UNFINISHED_TRIALS, TrialState
from trainhall.db.database import Database
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Attempt, JobProgress
from trainhall.monitoring.chunks import Run
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.spec.recovery import MetricMode

_LISTED = 12
"""Most metrics that a reason lists."""
_EVERY_POINT = 2**62
_CANDIDATES = 3
"""Configurations of an experiment whose means are computed: sums of a database are less exact."""
_LARGEST = 1e300
"""Values beyond it, of which a sum might overflow, are summed as this."""
_SAMPLED_POINTS = 4096
"""Most points that a median is of; a longer series has every n-th."""


@dataclass(frozen=True)
class BestTrial:
    trial: int
    job_id: str | None
    values: dict[str, Any]
    value: float
    """Mean over the repeats."""
    step: int | None = None
    """Step of its rung of early stopping; None: it has completed."""
    ties: tuple[int, ...] = ()
    """Other completed configurations with the same mean, at most two of them."""


async def read_objective(
    database: Database, job_id: str, experiment: Experiment, to_step: int | None = None
) -> float | None:
    """Return the value that rates a job, at its end or at a step; None: it has no finite one."""
    metric = experiment.metric
    if experiment.objective_at == "best":
        return await _best_value(database, job_id, metric, experiment.goal, to_step)
    if experiment.objective_at == "median":
        return await _median_value(database, job_id, experiment, to_step)
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
    database: Database, job_id: str, experiment: Experiment, to_step: int | None
) -> float | None:
    """Return the median of the values after the warm-up of each attempt."""
    run = await _job_wide(database, job_id, experiment.metric, to_step, _SAMPLED_POINTS)
    async with database.session() as session:
        starts = await session.scalars(select(Attempt.first_step).where(Attempt.job_id == job_id))
    warmup_steps = experiment.spec.get("warmup_steps", 0)
    values = run.last[after_warmup(run.steps, starts, warmup_steps)]
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
    reports = f"reports {names}, not {metric}"
    return f"did you mean {near[0]}? The job {reports}" if near else f"it {reports}"


async def best_trials(
    session: AsyncSession, experiments: Sequence[Experiment]
) -> dict[str, BestTrial]:
    """Return the best configuration of each experiment by its id: of those that have completed,
    else of those at the highest rung. One that has a repeat without a value does not count."""
    signs = {each.id: _sign(each) for each in experiments}
    runs = await session.execute(_candidates(experiments, signs))
    found: dict[str, BestTrial] = {}
    for (experiment_id, number), repeats in groupby(runs, key=lambda run: (run[0], run[1])):
        sign, rated = signs[experiment_id], list(repeats)
        mean = mean_of_repeats(run.objective for run in rated)
        before = found.get(experiment_id)
        if before is None or sign * mean < sign * before.value:
            best = min(rated, key=lambda run: sign * run.objective)
            found[experiment_id] = BestTrial(number, best.job_id, best.values, mean)
        elif mean == before.value:
            found[experiment_id] = replace(before, ties=(*before.ties, number))
    unrated = {e.id: e for e in experiments if e.id not in found and rungs_of(e.spec)}
    return found | await _best_at_rungs(session, unrated) if unrated else found


async def _best_at_rungs(
    session: AsyncSession, experiments: Mapping[str, Experiment]
) -> dict[str, BestTrial]:
    """Return the best configuration at the highest rung that all repeats of one have reached."""
    runs = await session.execute(
        select(Trial.experiment_id, Trial.number, Trial.job_id, Trial.results, Trial.values)
        .where(
            Trial.experiment_id.in_(experiments),
            Trial.state.in_(UNFINISHED_TRIALS),
            Trial.objective.is_not(None),
        )
        .order_by(Trial.experiment_id, Trial.number, Trial.repeat)
    )
    rated: dict[str, list[BestTrial]] = defaultdict(list)
    for (experiment_id, _), repeats in groupby(runs, key=lambda run: (run[0], run[1])):
        if (trial := _at_rung(experiments[experiment_id], list(repeats))) is not None:
            rated[experiment_id].append(trial)
    signs = {each.id: _sign(each) for each in experiments.values()}
    return {
        experiment_id: min(trials, key=lambda t: (-(t.step or 0), signs[experiment_id] * t.value))
        for experiment_id, trials in rated.items()
    }


def _at_rung(experiment: Experiment, repeats: Sequence[Any]) -> BestTrial | None:
    """Return a configuration at the highest rung that all its repeats have reached."""
    found = mean_at_rung(run.results for run in repeats)
    if len(repeats) < experiment.spec.get("repeats", 1) or found is None:
        return None
    rung, value = found
    best = min(repeats, key=lambda run: _sign(experiment) * run.results[rung - 1])
    step = rungs_of(experiment.spec)[rung - 1]
    return BestTrial(best.number, best.job_id, best.values, value, step)


def _sign(experiment: Experiment) -> float:
    """Return the factor that makes lower values of the objective the better ones."""
    return 1.0 if experiment.goal == MetricMode.MIN else -1.0


def _candidates(
    experiments: Sequence[Experiment], signs: Mapping[str, float]
) -> Select[str, int, str | None, float | None, dict[str, Any]]:
    """Select the runs of the first configurations of each experiment, which may have thousands."""
    repeats = {each.id: each.spec.get("repeats", 1) for each in experiments}
    is_rated = (
        Trial.experiment_id.in_(signs),
        Trial.state == TrialState.COMPLETED.value,
        Trial.objective.is_not(None),
    )
    value, limit = Trial.objective, case((Trial.objective > 0, _LARGEST), else_=-_LARGEST)
    # No average: for its variance Postgres squares the values, and refuses 1e200.
    total = func.sum(case((func.abs(value) < _LARGEST, value), else_=limit))
    loss = case(signs, value=Trial.experiment_id) * total
    place = func.row_number().over(partition_by=Trial.experiment_id, order_by=[loss, Trial.number])
    first = (
        select(Trial.experiment_id, Trial.number, place.label("place"))
        .where(*is_rated)
        .group_by(Trial.experiment_id, Trial.number)
        .having(func.count() >= case(repeats, value=Trial.experiment_id))
        .subquery()
    )
    of_trial = (first.c.experiment_id == Trial.experiment_id, first.c.number == Trial.number)
    return (
        select(Trial.experiment_id, Trial.number, Trial.job_id, Trial.objective, Trial.values)
        .join(first, and_(*of_trial))
        .where(first.c.place <= _CANDIDATES)
        .order_by(Trial.experiment_id, Trial.number, Trial.repeat)
    )
