"""Findings of an experiment, as sentences."""

from typing import Any

import pytest
from support.experiments import RATE, experiment, runs

from trainhall.cluster.experiments.analysis.comparisons import compare
from trainhall.cluster.experiments.analysis.findings import findings
from trainhall.cluster.experiments.analysis.importance import FieldShare, Importances
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow, rated, trial_rows
from trainhall.training.spec.recovery import MetricMode

NONE = Importances(note="")


def found(given: ExperimentRow, rows: list[RunRow], importance: Importances = NONE) -> list[str]:
    trials = trial_rows(rows)
    ranked = rated(trials, given.sign)
    return findings(given, trials, ranked, compare(given, ranked), importance)


def rates(*objectives: float | None) -> list[RunRow]:
    return [
        run
        for number, objective in enumerate(objectives, 1)
        for run in runs(number, {RATE: number / 10}, objective)
    ]


def test_best_trial_comes_with_its_values_and_cost() -> None:
    texts = found(experiment(), rates(0.5, 0.75, 0.625))
    assert texts[0] == "Trial 2 has the highest eval_accuracy, 0.75, with learning_rate 0.2."
    assert texts[-1] == "The runs used 3 device-hours."


def test_trials_with_the_same_value_share_the_best() -> None:
    texts = found(experiment(), rates(0.75, 0.5, 0.75))
    assert texts[0] == (
        "Trials 1 and 3 share the highest eval_accuracy, 0.75; trial 1 has learning_rate 0.1."
    )


def test_repeats_give_the_best_an_interval() -> None:
    rows = runs(1, {RATE: 0.1}, 0.5, 0.6, 0.7)
    assert "0.6 (mean of 3 runs, 95 % interval " in found(experiment(), rows)[0]


def test_repeats_without_an_effect_of_the_seed_are_named() -> None:
    said = (
        "All repeats of each trial have the same value: the seed has no effect. A script gets it "
        "as the parameter `seed`."
    )
    same = [*runs(1, {RATE: 0.1}, 0.5, 0.5), *runs(2, {RATE: 0.2}, 0.6, 0.6)]
    assert found(experiment(), same)[1] == said
    assert said not in found(experiment(), [*same, *runs(3, {RATE: 0.3}, 0.4, 0.5)])
    assert said not in found(experiment(), rates(0.5, 0.5))


def test_running_experiment_says_how_far_it_is() -> None:
    rows = rates(0.5, 0.75)
    rows[1] = RunRow(**{**vars(rows[1]), "state": "running", "objective": None})
    given = experiment(state="running", is_finished=False)
    assert found(given, rows)[0] == (
        "The experiment is running: 1 of 2 runs has ended. Findings are about those and may change."
    )


def test_nothing_completed_is_said() -> None:
    texts = found(experiment(state="failed"), rates(None, None))
    assert texts[0] == "No run has completed, so no trial is the best."
    assert texts[1] == "2 of 2 runs failed: 2 × rank 0 was killed."
    rows = [RunRow(**{**vars(run), "state": "pending", "reason": ""}) for run in rates(None)]
    assert found(experiment(), rows)[0] == "No run has completed, so no trial is the best."


def test_runs_without_a_value_are_counted() -> None:
    rows = [
        RunRow(**{**vars(run), "objective": None, "reason": "it reports no metric"})
        for run in rates(0.5)
    ]
    texts = found(experiment(), rows)
    assert texts[0] == "No trial has a value of eval_accuracy, so none is the best."
    assert texts[1] == (
        "1 run completed without a finite value of eval_accuracy: it reports no metric."
    )


def test_failures_are_grouped_by_cause() -> None:
    reasons = ["rank 0 of job 3f2a9c51d07b: the loss is NaN", "out of memory"]
    reasons += ["rank 3 of job 5e60b7d2f913: the loss is NaN"]
    rows = [
        RunRow(**{**vars(run), "reason": reason})
        for run, reason in zip(rates(None, None, None), reasons, strict=True)
    ]
    assert "3 of 3 runs failed: 2 × rank … of job …: the loss is NaN; 1 × out of memory." in found(
        experiment(), rows
    )


def test_value_with_which_every_run_failed_is_named() -> None:
    rows = runs(1, {RATE: 0.1}, 0.5, 0.5) + runs(2, {RATE: 0.2}, None, None)
    assert "All 2 runs with learning_rate 0.2 failed." in found(experiment(), rows)


@pytest.mark.parametrize(
    ("dimension", "best", "expected"),
    [
        ([0.1, 0.2, 0.3], 3, "is the largest of the list: try larger values."),
        ([0.1, 0.2, 0.3], 1, "is the smallest of the list: try smaller values."),
        ([0.1, 0.2, 0.3], 2, None),
        ([0.2, 0.3], 2, None),
        ({"range": [0.1, 0.3], "step": 0.1}, 3, "is the largest of its range"),
        ({"range": [0.0, 0.101]}, 1, "is the largest of its range, or close to it"),
        ({"range": [0.0, 1.0]}, 1, None),
        ({"log": [0.099, 10]}, 1, "is the smallest of its range"),
    ],
)
def test_best_value_at_a_border_is_named(dimension: Any, best: int, expected: str | None) -> None:
    rows = rates(*(1.0 if number == best else 0.5 for number in (1, 2, 3)))
    texts = found(experiment(space={RATE: dimension}), rows)
    named = [text for text in texts if text.startswith("The best learning_rate")]
    assert [expected in text for text in named if expected] == ([True] if expected else [])
    assert bool(named) == (expected is not None)


def test_importance_comes_with_its_uncertainty() -> None:
    space = {RATE: [0.1, 0.2, 0.3], "a.drop": [0, 1], "a.width": [1, 2]}
    importance = Importances(
        (
            FieldShare("a.drop", 0.7, (0.5, 0.8), has_effect=True),
            FieldShare("a.width", 0.2, (0.1, 0.3), has_effect=True),
            FieldShare(RATE, 0.1, (0.0, 0.2), has_effect=False),
        )
    )
    rows = [
        RunRow(**{**vars(run), "values": {**run.values, "a.drop": 0, "a.width": 1}})
        for run in rates(0.5, 0.6, 0.7)
    ]
    texts = found(experiment(space=space), rows, importance)
    assert (
        "drop matters most for a good value: 70 % of the importance (95 % interval 50 to 80 %)."
        in texts
    )
    assert "width matters, too." in texts
    assert "No effect shown for learning_rate." in texts
    # Its best value is the last of the list, which says nothing without an effect.
    assert not [text for text in texts if text.startswith("The best learning_rate")]


def test_lowest_value_is_the_best_of_a_loss() -> None:
    given = experiment(goal=MetricMode.MIN, metric="loss")
    assert found(given, rates(0.5, 0.25))[0].startswith("Trial 2 has the lowest loss, 0.25")


def test_runs_that_were_stopped_early_are_counted() -> None:
    rows = rates(0.5, None, None)
    rows[1:] = [RunRow(**{**vars(run), "state": "stopped"}) for run in rows[1:]]
    texts = found(experiment(), rows)
    assert texts[0].startswith("Trial 1 has the highest eval_accuracy")
    assert (
        "2 of 3 runs were stopped early; they cannot be the best, and for importance rank below "
        "those that went further." in texts
    )
    assert not [text for text in texts if "failed" in text]


def test_early_stopping_says_how_many_steps_it_saved() -> None:
    rows = rates(0.5, None, None)
    rows[1:] = [
        RunRow(**{**vars(run), "state": "stopped", "figures": {"steps": steps}})
        for run, steps in zip(rows[1:], (10, 30), strict=True)
    ]
    (text,) = (text for text in found(experiment(rungs=(100, 300, 900)), rows) if "stopped" in text)
    saved = "2 of 3 runs were stopped early and saved 1,760 of the 2,700 steps of all in full;"
    assert text.startswith(saved)


def test_leading_trial_is_that_of_the_highest_rung() -> None:
    waiting = {1: ("paused", [0.9]), 2: ("paused", [0.6, 0.7]), 3: ("running", [0.6, 0.8]),
               4: ("stopped", [0.6, 0.95]), 5: ("failed", [0.6, 0.95])}  # fmt: skip
    rows = [
        RunRow(number, 1, {RATE: number / 10}, state, results=results)
        for number, (state, results) in waiting.items()
    ]
    given = experiment(state="running", is_finished=False, rungs=(10, 30, 90))
    assert (
        "At step 30, the highest rung reached so far, trial 3 has the highest eval_accuracy, 0.8, "
        "with learning_rate 0.3." in found(given, rows)
    )
