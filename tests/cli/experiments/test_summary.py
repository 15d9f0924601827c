"""Texts about an experiment."""

import sys

import pytest

from trainhall.cli.experiments.summary import best_text, objective_text, steps_text, trial_means


def test_mean_needs_every_repeat_and_never_overflows() -> None:
    largest = sys.float_info.max
    runs = [
        {"number": number, "objective": objective, "objective_step": None}
        for number, objective in [(1, 0.25), (1, 0.75), (2, 0.5), (2, None), (3, largest)] * 2
    ]
    assert trial_means(runs) == {1: (0.5, None), 3: (largest, None)}


def test_mean_is_at_the_last_rung_of_all_repeats() -> None:
    values = [(1, [0.25, 0.9]), (1, [0.75]), (2, [0.5, 0.6, 0.7]), (2, [0.5, 0.8])]
    runs = [
        {
            "number": number,
            "objective": found[-1],
            "objective_step": 10 * 3 ** (len(found) - 1) if len(found) < 3 else None,
            "results": [{"step": 10 * 3**i, "value": value} for i, value in enumerate(found)],
        }
        for number, found in values
    ]
    assert trial_means(runs) == {1: (0.5, 10), 2: (pytest.approx(0.7), 30)}


def test_objective_at_a_rung_names_its_step() -> None:
    assert objective_text(0.25, 1200) == "0.25 at step 1,200"
    assert objective_text(0.25, None) == "0.25"


@pytest.mark.parametrize(("step", "at"), [(None, ""), (1200, " at step 1,200")])
def test_best_text_names_the_step_of_a_rung(step: int | None, at: str) -> None:
    experiment = {
        "spec": {"objective": {"metric": "loss"}},
        "best": {"trial": 3, "value": 0.25, "step": step, "ties": []},
    }
    assert best_text(experiment) == f"trial 3, loss 0.25{at}"


def test_steps_text_compares_with_all_runs_in_full() -> None:
    text = steps_text({"taken": 1620, "in_full": 14580})
    assert text == "1,620 of 14,580 that all runs in full would take (11 %)"
