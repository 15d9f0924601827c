"""PED-ANOVA (Watanabe et al., IJCAI 2023) as Optuna implements it.

It takes half a second to import, so this module is imported when it is used.
"""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from typing import Any

from optuna import logging
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from trainhall.arrays import Floats, Ints, np
from trainhall.cluster.experiments.analysis.importance import Axis, Scale

logging.set_verbosity(logging.WARNING)
_NAME = "analysis"
_EVER = datetime(2000, 1, 1)
_STORAGE = InMemoryStorage()
_STORAGE.create_new_study([StudyDirection.MINIMIZE], _NAME)


class _Study(Study):
    """A study whose trials are given: adding them one by one checks each, which takes longer than
    the evaluation."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        super().__init__(_NAME, _STORAGE)
        self._given = trials

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return self._given


def evaluate(axes: Sequence[Axis], ranks: Ints, top: float) -> Floats:
    """Return the importance of each axis; see `importance.Evaluate`."""
    distributions = {axis.field: _distribution(axis) for axis in axes}
    columns = [_column(axis) for axis in axes]
    fields = list(distributions)
    trials = [
        _trial(i, int(rank), dict(zip(fields, row, strict=True)), distributions)
        for i, (rank, row) in enumerate(zip(ranks, zip(*columns, strict=True), strict=True))
    ]
    found = PedAnovaImportanceEvaluator(target_quantile=top).evaluate(_Study(trials))
    return np.array([found[field] for field in fields])


def _trial(
    number: int, rank: int, params: dict[str, Any], distributions: dict[str, BaseDistribution]
) -> FrozenTrial:
    return FrozenTrial(
        number=number, trial_id=number, state=TrialState.COMPLETE, value=rank,
        params=params, distributions=distributions, datetime_start=_EVER, datetime_complete=_EVER,
        user_attrs={}, system_attrs={}, intermediate_values={},
    )  # fmt: skip


def _distribution(axis: Axis) -> BaseDistribution:
    match axis.scale:
        case Scale.LINEAR | Scale.LOG:
            return FloatDistribution(axis.low, axis.high, log=axis.scale is Scale.LOG)
        case Scale.ORDER:
            return IntDistribution(int(axis.low), int(axis.high))
    return CategoricalDistribution(range(int(axis.high) + 1))


def _column(axis: Axis) -> Iterable[float]:
    if axis.scale in (Scale.LINEAR, Scale.LOG):
        return axis.values
    return map(int, axis.values)
