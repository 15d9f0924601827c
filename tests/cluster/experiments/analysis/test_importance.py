"""Importance of the fields: found where there is one, and not where there is none."""

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.examples import share_of
from support.experiments import RATE, runs, trials_of

from trainhall.cluster.experiments.analysis.importance import (
    MAX_FIELDS,
    MIN_TRIALS,
    Axis,
    Evaluate,
    Scale,
    importances,
)
from trainhall.cluster.experiments.analysis.rows import TrialRow, ranked_by_progress, trial_rows

SPACE: dict[str, Any] = {
    RATE: {"log": [1e-4, 1e-1]},
    "training.global_batch_size": [16, 32, 64],
    "training.optimizer": ["adam", "sgd"],
    "parameters.drop": {"range": [0.0, 0.5]},
}


def drawn(number: int, seed: int, *, matters: bool) -> list[tuple[TrialRow, int]]:
    """Trials of which the learning rate decides the objective, or nothing does."""
    chance = random.Random(seed)
    found = []
    for trial in range(1, number + 1):
        values: dict[str, Any] = {
            RATE: 10 ** chance.uniform(-4, -1),
            "training.global_batch_size": chance.choice([16, 32, 64]),
            "training.optimizer": chance.choice(["adam", "sgd"]),
            "parameters.drop": chance.uniform(0, 0.5),
        }
        effect = -((math.log10(values[RATE]) + 2) ** 2) if matters else 0.0
        found += runs(trial, values, effect + chance.gauss(0, 0.1))
    return ranked_by_progress(trial_rows(found), -1)


@pytest.fixture(scope="module")
def evaluate() -> Evaluate:
    # Imported by the worker that runs these tests: all import this file, and scikit-learn takes a
    # second.
    from trainhall.cluster.experiments.analysis import ped_anova

    return ped_anova.evaluate


@pytest.mark.parametrize("seed", [1, 2])
def test_field_that_decides_the_objective_matters_most(seed: int, evaluate: Evaluate) -> None:
    found = importances(SPACE, drawn(60, seed, matters=True), evaluate).fields
    assert (found[0].field, found[0].has_effect) == (RATE, True)
    assert found[0].share > 0.5
    assert sum(each.share for each in found) == pytest.approx(1)
    for each in found:
        assert 0 <= each.interval[0] <= each.share <= each.interval[1] <= 1


def test_effects_are_rarely_shown_where_there_are_none(evaluate: Evaluate) -> None:
    shown = sum(
        each.has_effect
        for seed in range(share_of(6))
        for each in importances(SPACE, drawn(25, seed, matters=False), evaluate).fields
    )
    assert shown <= 2


def test_importance_is_the_same_every_time(evaluate: Evaluate) -> None:
    trials = drawn(20, 1, matters=True)
    once, again = (importances(SPACE, trials, evaluate) for _ in range(2))
    assert once == again


def refuse(axes: Sequence[Axis], ranks: NDArray[np.int64], top: float) -> NDArray[np.float64]:
    raise AssertionError("not enough to measure")


def test_too_few_trials_have_no_importance() -> None:
    trials = ranked_by_progress(trials_of(*([0.1 * i] for i in range(MIN_TRIALS - 1))), -1)
    found = importances({RATE: [0.1]}, trials, refuse)
    assert (found.fields, found.note) == (
        (),
        "Which field matters is not estimated: 9 trials of the 10 that it needs have a value.",
    )


def test_equal_objectives_and_constant_fields_have_no_importance() -> None:
    trials = ranked_by_progress(trials_of(*([1.0] for _ in range(12))), -1)
    assert "most trials have the same value" in importances({RATE: [1]}, trials, refuse).note
    trials = ranked_by_progress(trials_of(*([float(i)] for i in range(12))), -1)
    assert "No field has different values" in importances({"other": [1]}, trials, refuse).note


def test_values_become_positions_on_their_scale() -> None:
    seen: list[Axis] = []

    def record(axes: Sequence[Axis], ranks: NDArray[np.int64], top: float) -> NDArray[np.float64]:
        seen[:] = axes
        assert top >= 0.1
        return np.ones(len(axes))

    importances(SPACE, drawn(12, 1, matters=True), record)
    assert [axis.scale for axis in seen] == [Scale.LOG, Scale.ORDER, Scale.CHOICE, Scale.LINEAR]
    assert set(seen[1].values) == {0, 1, 2}


def test_only_the_most_important_of_many_fields_are_rated() -> None:
    fields = [f"parameters.p{i}" for i in range(MAX_FIELDS + 2)]
    chance = random.Random(1)
    found = [
        run
        for trial in range(1, 13)
        for run in runs(trial, {field: chance.random() for field in fields}, chance.random())
    ]

    def by_name(axes: Sequence[Axis], ranks: NDArray[np.int64], top: float) -> NDArray[np.float64]:
        return np.array([1.0 + fields.index(axis.field) for axis in axes])

    space = {field: {"range": [0, 1]} for field in fields}
    rating = importances(space, ranked_by_progress(trial_rows(found), -1), by_name)
    assert [each.field for each in rating.fields] == fields[:1:-1]
    assert rating.note == "2 less important fields left out."
