"""Trials from runs: a figure that is not known for every repeat is not made up."""

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.experiments import RATE, runs, trials_of

from trainhall.cluster.experiments.analysis.rows import (
    RunRow,
    field_labels,
    ranked_by_progress,
    rated,
    trial_rows,
)

OBJECTIVES = st.lists(
    st.lists(st.none() | st.floats(-1e300, 1e300), min_size=1, max_size=4), min_size=1, max_size=6
)


@given(OBJECTIVES, st.randoms(use_true_random=False))
def test_trial_rows_ignore_the_order_of_runs(
    objectives: list[list[float | None]], chance: random.Random
) -> None:
    shuffled = [run for trial in trials_of(*objectives) for run in trial.runs]
    chance.shuffle(shuffled)
    assert trial_rows(shuffled) == trials_of(*objectives)


@given(OBJECTIVES, st.sampled_from([1, -1]))
def test_rated_trials_have_a_value_for_every_repeat(
    objectives: list[list[float | None]], sign: int
) -> None:
    ranked = rated(trials_of(*objectives), sign)
    expected = [n for n, given in enumerate(objectives, 1) if None not in given]
    assert sorted(trial.trial for trial in ranked) == expected
    values = [sign * trial.objective for trial in ranked if trial.objective is not None]
    assert values == sorted(values)


def test_trial_has_means_and_spread_of_what_was_measured() -> None:
    first, second = runs(1, {RATE: 0.1}, 0.5, 0.75)
    first = RunRow(**{**vars(first), "figures": {"step_seconds": 0.25, "steps": 10.0}})
    second = RunRow(**{**vars(second), "figures": {"step_seconds": 0.75, "steps": None}})
    (trial,) = trial_rows([first, second])
    assert trial.objective == fmean([0.5, 0.75])
    assert trial.figures["step_seconds"] == 0.5
    assert (trial.figures["steps"], trial.figures["peak_memory_bytes"]) == (10.0, None)
    assert trial.spread == {"objective": (0.5, 0.75), "step_seconds": (0.25, 0.75)}


@pytest.mark.parametrize(
    ("repeats", "at_rung"),
    [
        ([("stopped", [0.4]), ("stopped", [0.6])], (1, 0.5)),
        ([("paused", [0.4]), ("running", [0.6, 0.7])], (1, 0.5)),
        ([("paused", [0.4, 0.5]), ("completed", [0.6, 0.7, 0.8])], (2, 0.6)),
        ([("running", []), ("paused", [0.6])], None),
        ([("stopped", [None]), ("stopped", [0.6])], None),
        ([("stopped", [0.4]), ("failed", [0.6])], None),
        ([("completed", [0.4, None])], None),
    ],
)
def test_value_at_a_rung_is_of_every_repeat(
    repeats: list[tuple[str, list[float | None]]], at_rung: tuple[int, float] | None
) -> None:
    rows = [
        RunRow(1, repeat, {}, state, results=results)
        for repeat, (state, results) in enumerate(repeats, 1)
    ]
    (trial,) = trial_rows(rows)
    assert trial.objective is None
    assert trial.at_rung == pytest.approx(at_rung)


def test_completed_trial_says_that_a_job_was_deleted() -> None:
    first, second = runs(1, {}, 0.5, 0.75)
    assert trial_rows([first, second])[0].reason == ""
    gone = RunRow(**{**vars(second), "job_id": None, "reason": "its job was deleted"})
    assert trial_rows([first, gone])[0].reason == "its job was deleted"


def test_state_of_an_unfinished_run_comes_first() -> None:
    first, second, third = runs(1, {}, 0.5, None, 0.5)
    assert trial_rows([first, second])[0].state == "failed"
    assert trial_rows([first, second])[0].reason == "rank 0 was killed"
    running = RunRow(**{**vars(third), "state": "running"})
    assert trial_rows([first, second, running])[0].state == "running"


def stopped(trial: int, *results: float | None) -> RunRow:
    (run,) = runs(trial, {}, None)
    return RunRow(**{**vars(run), "state": "stopped", "results": results})


def test_stopped_trials_rank_below_those_that_went_further() -> None:
    completed = runs(1, {}, 0.5) + runs(2, {}, 0.75) + runs(3, {}, None)
    early = [stopped(4, 0.9), stopped(5, 0.9, 0.4), stopped(6, 0.9), stopped(7, None), stopped(8)]
    ranked = ranked_by_progress(trial_rows(completed + early), -1)
    assert [(trial.trial, rank) for trial, rank in ranked] == [
        (2, 0), (1, 1), (5, 2), (4, 3), (6, 3),
    ]  # fmt: skip


def test_labels_are_short_unless_two_fields_end_alike() -> None:
    assert field_labels(["training.seed", "task.params.seed", RATE]) == {
        "training.seed": "training.seed",
        "task.params.seed": "task.params.seed",
        RATE: "learning_rate",
    }
