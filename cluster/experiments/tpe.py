"""Values that Optuna's TPE sampler suggests for the next trial, from the results so far.

Nothing of Optuna is kept: each trial gets a new study, filled from our tables. So the values follow
from the seed, the number of the trial and the rows of those before it, and a coordinator that was
killed suggests the same values after its restart.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.asha import RungRun, RungTrial, Status, trials_of
from trainhall.cluster.experiments.runs import drawn_point
from trainhall.cluster.experiments.space import Dimension
from trainhall.cluster.experiments.spec import ExperimentSpec, rungs_of
from trainhall.cluster.lifecycle.states import TrialState
from trainhall.db.experiments import Experiment, Trial
from trainhall.training.spec.recovery import MetricMode

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_SUGGESTIONS = 10
"""Suggestions that another trial has already before the values are drawn at random."""


@dataclass(frozen=True)
class Past:
    """The trials so far, in their order."""

    trials: list[RungTrial]
    """Without early stopping, each has one result, that of its end."""
    values: list[dict[str, Any]]
    rungs: tuple[int, ...] = (1,)
    """Steps of the results."""


async def load_past(session: AsyncSession, experiment: Experiment) -> Past:
    """Load the trials so far."""
    rows = await session.execute(
        select(
            Trial.number, Trial.repeat, Trial.state, Trial.results, Trial.objective, Trial.values
        )
        .where(Trial.experiment_id == experiment.id)
        .order_by(Trial.number, Trial.repeat)
    )
    runs: list[RungRun] = []
    values: dict[int, dict[str, Any]] = {}
    stops_early = experiment.spec.get("early_stopping") is not None
    for row in rows:
        values[row.number] = row.values
        results = row.results
        if not stops_early:
            results = [row.objective] if row.state == TrialState.COMPLETED else []
        runs.append(RungRun((row.number, row.repeat), TrialState(row.state), tuple(results)))
    trials = trials_of(runs, lower_is_better=experiment.goal == MetricMode.MIN)
    return Past(trials, list(values.values()), rungs_of(experiment.spec) or (1,))


def suggest(spec: ExperimentSpec, past: Past) -> dict[str, Any]:
    """Return the values of the next trial, which no other trial has.

    It imports Optuna and takes a while: call it in a thread.

    Raises:
        ExperimentError: there is no other combination.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {field: _distribution(each) for field, each in spec.space.items()}
    known = [
        _frozen(spec, trial, values, past.rungs, distributions)
        for trial, values in zip(past.trials, past.values, strict=True)
        if values.keys() == spec.space.keys()
    ]
    seen = set(map(repr, past.values))
    number = len(past.trials) + 1
    for attempt in range(_SUGGESTIONS):
        seed = random.Random(f"{spec.seed or 0}/{number}/{attempt}").getrandbits(32)
        sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed)
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for trial in known:
            study.add_trial(trial)
        params = study.ask(distributions).params
        point = {field: _value(each, params[field]) for field, each in spec.space.items()}
        if repr(point) not in seen:
            return point
    return drawn_point(spec, number, seen)


def _distribution(dimension: Dimension) -> "BaseDistribution":
    from optuna import distributions

    if dimension.values is None:
        return distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.is_log)
    count = len(dimension.values)
    if dimension.is_ordered:
        return distributions.IntDistribution(0, count - 1)
    return distributions.CategoricalDistribution(range(count))


def _value(dimension: Dimension, param: Any) -> Any:
    return dimension.rounded(param) if dimension.values is None else dimension.values[param]


def _param(dimension: Dimension, value: Any) -> Any:
    # 1 and true are equal in Python.
    return value if dimension.values is None else [*map(repr, dimension.values)].index(repr(value))


def _frozen(
    spec: ExperimentSpec,
    trial: RungTrial,
    values: Mapping[str, Any],
    rungs: Sequence[int],
    distributions: "dict[str, BaseDistribution]",
) -> "FrozenTrial":
    from optuna import trial as optuna_trial

    states = optuna_trial.TrialState
    results, value = trial.results, None
    if trial.status is Status.FAILED or (results and results[-1] is None):
        state = states.FAIL
    elif len(results) == len(rungs):
        state, value = states.COMPLETE, results[-1]
    elif results:
        # Stopped or not, its result counts at the rung that it has reached.
        state = states.PRUNED
    else:
        state = states.RUNNING
    return optuna_trial.create_trial(
        state=state,
        value=value,
        params={field: _param(each, values[field]) for field, each in spec.space.items()},
        distributions=distributions,
        intermediate_values={
            step: result for step, result in zip(rungs, results, strict=False) if result is not None
        },
    )
