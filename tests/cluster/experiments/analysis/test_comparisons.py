"""The best trial against others: no claim that the repeats do not allow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.experiments import RATE, experiment, runs, trials_of

from trainhall.cluster.experiments.analysis.comparisons import Verdict, compare, is_categorical
from trainhall.cluster.experiments.analysis.rows import rated, trial_rows
from trainhall.training.spec.recovery import MetricMode


@given(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=2), min_size=2, max_size=6))
def test_fewer_than_three_repeats_show_no_difference(objectives: list[list[float]]) -> None:
    for compared in compare(experiment(), rated(trials_of(*objectives), -1)):
        assert compared.verdict is Verdict.TOO_FEW_RUNS
        assert "better" not in compared.text


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=5), min_size=2, max_size=5))
def test_better_has_an_interval_without_zero(objectives: list[list[float]]) -> None:
    for compared in compare(experiment(), rated(trials_of(*objectives), -1)):
        assert compared.interval is not None
        is_better = compared.interval[0] > 0
        assert (compared.verdict is Verdict.BETTER) == is_better
        assert compared.difference >= 0


def test_single_runs_have_no_spread() -> None:
    (compared,) = compare(experiment(), rated(trials_of([0.5], [0.75]), -1))
    assert compared.interval is None
    assert compared.text == (
        "Trial 2 has eval_accuracy 0.75, trial 1 (the runner-up) 0.5: with 1 repeat no spread is "
        "known: set repeats: 3."
    )


def test_same_values_are_said_to_be_the_same() -> None:
    (compared,) = compare(experiment(), rated(trials_of([0.75], [0.75]), -1))
    assert compared.text.startswith("Trials 1 and 2 (the runner-up) both have eval_accuracy 0.75: ")


@pytest.mark.parametrize(("goal", "best"), [(MetricMode.MAX, 2), (MetricMode.MIN, 1)])
def test_clear_difference_is_shown_for_either_goal(goal: MetricMode, best: int) -> None:
    given = experiment(goal=goal)
    trials = trials_of([0.50, 0.51, 0.49], [0.90, 0.91, 0.92])
    (compared,) = compare(given, rated(trials, given.sign))
    assert (compared.best.trial, compared.verdict) == (best, Verdict.BETTER)
    assert ": better (95 % interval of the difference" in compared.text


def test_best_is_compared_with_other_categories() -> None:
    field = "training.optimizer"
    trials = trial_rows(
        run
        for number, (name, value) in enumerate(
            [("adam", 0.9), ("adam", 0.8), ("sgd", 0.7), ("sgd", 0.6), ("lion", 0.5)], 1
        )
        for run in runs(number, {field: name, RATE: number}, value, value, value)
    )
    given = experiment(space={field: ["adam", "sgd", "lion"], RATE: [1, 2, 3, 4, 5]})
    found = compare(given, rated(trials, given.sign))
    assert [(c.field, c.other.trial) for c in found] == [(None, 2), (field, 3), (field, 5)]
    assert "trial 3 (the best with optimizer sgd) 0.7" in found[1].text


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [([1, 2], False), ([True, False], True), (["a", 1], True), ({"range": [0, 1]}, False)],
)
def test_categories_are_lists_with_other_than_numbers(dimension: Any, expected: bool) -> None:
    assert is_categorical(dimension) is expected
