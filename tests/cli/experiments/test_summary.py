"""Texts about an experiment."""

import sys

import pytest

from trainhall.cli.experiments.summary import best_text, steps_text, trial_means


def test_mean_needs_every_repeat_and_never_overflows() -> None:
    largest = sys.float_info.max
    runs = [
        {"number": number, "objective": objective}
        for number, objective in [(1, 0.25), (1, 0.75), (2, 0.5), (2, None), (3, largest)] * 2
    ]
    assert trial_means(runs) == {1: 0.5, 3: largest}


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
