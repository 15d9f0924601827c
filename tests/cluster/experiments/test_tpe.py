"""Values that TPE chooses, from trials of any state."""

import math
from typing import Any

import pytest

from trainhall.cluster.experiments.asha import RungTrial, Status
from trainhall.cluster.experiments.runs import plan_configurations
from trainhall.cluster.experiments.spec import (
    ExperimentError,
    ExperimentSpec,
    validate_experiment,
)
from trainhall.cluster.experiments.tpe import Past, suggest

RATE = "training.learning_rate"


def sweep(trials: int = 30, **changes: Any) -> ExperimentSpec:
    return validate_experiment(
        {
            "name": "sweep",
            "kind": "sweep",
            "job": {"name": "digits", "task": {"name": "digits"}},
            "space": {
                RATE: {"log": [1e-4, 1]},
                "task.params.hidden": [[16], [64]],
                "training.global_batch_size": {"range": [16, 64], "step": 16},
            },
            "method": "tpe",
            "objective": {"metric": "loss"},
            "trials": trials,
            **changes,
        }
    )


def loss(values: dict[str, Any]) -> float:
    """Best at a rate of 0.01 and 64 hidden units."""
    return abs(math.log10(float(values[RATE])) + 2) + float(values["task.params.hidden"] == [16])


def run(spec: ExperimentSpec, trials: int) -> list[dict[str, Any]]:
    past = Past([], [])
    for number in range(1, trials + 1):
        values = suggest(spec, past)
        past.values.append(values)
        past.trials.append(RungTrial(number, Status.RUNNING, (loss(values),)))
    return past.values


def test_choices_follow_from_seed_and_results() -> None:
    chosen = run(sweep(seed=3), 30)
    assert run(sweep(seed=3), 30) == chosen
    assert run(sweep(seed=4), 1) != chosen[:1]
    early, late = chosen[:10], chosen[20:]
    assert sum(map(loss, late)) < sum(map(loss, early))
    assert {values["training.global_batch_size"] for values in chosen} <= {16, 32, 48, 64}


def test_results_at_rungs_are_learnt_from() -> None:
    spec = sweep()
    values = run(spec, 8)
    trials = [
        RungTrial(1, Status.RUNNING),
        RungTrial(2, Status.WAITING, (0.5,)),
        RungTrial(3, Status.STOPPED, (0.7,)),
        RungTrial(4, Status.STOPPED, (None,)),
        RungTrial(5, Status.FAILED),
        RungTrial(6, Status.RUNNING, (0.1, 0.2)),
        RungTrial(7, Status.RUNNING, (0.1, None)),
        RungTrial(8, Status.RUNNING, (None, 0.3, 0.2)),
    ]
    assert suggest(spec, Past(trials, values, (10, 30, 90))) not in values


def test_no_combination_is_chosen_twice() -> None:
    spec = sweep(
        trials=8,
        space={
            "task.params.hidden": [[16], [64]],
            "training.global_batch_size": {"range": [16, 64], "step": 16},
        },
    )
    past = Past([], [])
    for number in range(1, 9):
        past.values.append(suggest(spec, past))
        past.trials.append(RungTrial(number, Status.RUNNING, (1.0,)))
    assert len(set(map(repr, past.values))) == 8


def test_results_belong_to_the_value_that_they_had() -> None:
    """1 and true are equal in Python."""
    job = {"name": "x", "script": {"path": "/train.py", "args": ["${a}", "${b}"]}}
    space = {"parameters.a": [1, True], "parameters.b": {"range": [0, 1]}}
    values = [{"parameters.a": n % 2 or True, "parameters.b": n / 40} for n in range(40)]
    trials = [RungTrial(n + 1, Status.RUNNING, (float(n % 2),)) for n in range(40)]
    specs = [sweep(60, space=space, job=job, seed=seed) for seed in range(4)]
    chosen = [suggest(spec, Past(trials, values))["parameters.a"] for spec in specs]
    assert [*map(repr, chosen)] == ["True"] * 4


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"trials": None}, "trials", "is required for method tpe"),
        ({"space": {RATE: {"range": [-1, 1]}}}, f"space.{RATE}", "must be more than 0"),
        ({"space": {RATE: [0.1, -1]}, "trials": 2}, f"space.{RATE}", "must be more than 0"),
        ({"space": {"training.seed": {"range": [1, 9]}}}, "space.training.seed", "an integer"),
        ({"space": {RATE: [0.1]}}, "trials", "at most 1"),
    ],
)
def test_space_that_makes_bad_jobs_is_refused(
    changes: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ExperimentError) as refused:
        plan_configurations(sweep(**changes))
    assert refused.value.problems[0].field == field
    assert message in refused.value.problems[0].message
