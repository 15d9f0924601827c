"""Values that Optuna's TPE sampler suggests for the next trial, from the results so far.

Nothing of Optuna is kept: each trial gets a new study, filled from our tables. So the values follow
from the seed, the number of the trial and the rows of those before it, as they were when a place
became free. A coordinator that was killed suggests the same values after its restart, unless there
are new results.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.asha import RungRun, RungTrial, Status, trials_of
from trainhall.cluster.experiments.runs import drawn_point
from trainhall.cluster.experiments.space import Dimension
from trainhall.cluster.experiments.spec import ExperimentSpec, rungs_of, validate_experiment
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import TrialState
from trainhall.cluster.waiting import end_tasks
from trainhall.db.experiments import Experiment, Trial
from trainhall.training.spec import SpecError
from trainhall.training.spec.recovery import MetricMode

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

log = structlog.get_logger(__name__)

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


@dataclass(frozen=True)
class Suggestion:
    number: int
    """Number of the trial."""
    values: dict[str, Any]
    refused: Reason | None = None
    """Why the trial has no values."""


class Suggestions:
    """Suggestions that are computed in a thread, one at a time, while the coordinator's passes
    continue; at most one of each experiment."""

    def __init__(self, notify: Callable[[], None]) -> None:
        """
        Args:
            notify: called after each that was computed.
        """
        self._notify = notify
        self._tasks: dict[str, asyncio.Task[Suggestion]] = {}
        """By experiment."""
        self._turn = asyncio.Lock()

    def __contains__(self, experiment_id: str) -> bool:
        return experiment_id in self._tasks

    def begin(self, experiment_id: str, spec: dict[str, Any], past: Past) -> None:
        task = asyncio.create_task(self._suggest(experiment_id, spec, past))
        self._tasks[experiment_id] = task
        task.add_done_callback(lambda _: self._notify())

    def take(self, experiment_id: str) -> Suggestion | None:
        """Return the suggestion and forget it; None: it is not computed yet."""
        if not self._tasks[experiment_id].done():
            return None
        return self._tasks.pop(experiment_id).result()

    def drop(self, experiment_id: str) -> None:
        """Forget the suggestion: the place that it was for is taken."""
        if (task := self._tasks.pop(experiment_id, None)) is not None:
            task.cancel()

    def keep(self, experiment_ids: Collection[str]) -> None:
        """Forget those of other experiments."""
        for ended in self._tasks.keys() - set(experiment_ids):
            self.drop(ended)

    async def wait(self) -> bool:
        """Wait until all are computed; return whether there was one to wait for."""
        pending = [task for task in self._tasks.values() if not task.done()]
        if pending:
            await asyncio.wait(pending)
        return bool(pending)

    async def stop(self) -> None:
        await end_tasks(self._tasks.values())
        self._tasks.clear()

    async def _suggest(
        self, experiment_id: str, document: dict[str, Any], past: Past
    ) -> Suggestion:
        number, why = len(past.trials) + 1, ""
        try:
            spec = validate_experiment(document)
            async with self._turn:
                return Suggestion(number, await asyncio.to_thread(suggest, spec, past))
        except SpecError as error:
            why = str(error)
        except Exception as error:
            # A fault of Optuna costs this trial, not the coordinator's passes, now and ever after.
            log.exception("choosing_failed", experiment=experiment_id, trial=number)
            why = f"choosing its values failed: {type(error).__name__}: {error}"
        return Suggestion(number, {}, Reason.of(ReasonCode.TRIAL_NOT_STARTED, why=why))


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
