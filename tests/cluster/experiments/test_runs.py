"""The space of an experiment: which trials there are, and what is refused, by field."""

from functools import partial
from typing import Any

import pytest

from trainhall.cluster.experiments.runs import job_of, plan_configurations, start_order
from trainhall.cluster.experiments.spec import (
    ExperimentError,
    ExperimentSpec,
    parse_experiment,
    validate_experiment,
)

RATE, STEPS = "training.learning_rate", "training.steps"
WORKERS, BATCH = "resources.workers", "training.global_batch_size"
JOB: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}
WITH_PARAMETERS = {**JOB, "parameters": {"a": 0, "b": 1}}
SCRIPT: dict[str, Any] = {"name": "script", "script": {"path": "/train.py"}}
RATED: dict[str, Any] = {
    "name": "rated",
    "script": {"path": "/train.py", "args": ["--lr", "${lr}", "$${HOME}"]},
}
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "kind": "sweep",
    "job": JOB,
    "space": {RATE: [0.1, 0.01]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
}


def scaling(**changes: Any) -> dict[str, Any]:
    """The changes that make a scaling study of a sweep."""
    defaults = {"kind": "scaling", "space": {WORKERS: [1, 2]}}
    return {**defaults, "objective": {"metric": "samples_per_second", "goal": "max"}, **changes}


def sweep(**changes: Any) -> ExperimentSpec:
    return validate_experiment({**SWEEP, **changes})


def values(**changes: Any) -> list[dict[str, Any]]:
    return [each.values for each in plan_configurations(sweep(**changes))]


def test_grid_is_the_product_in_order() -> None:
    space = {RATE: [0.1, 0.01], STEPS: {"range": [10, 30], "step": 10}}
    expected = [{RATE: r, STEPS: s} for r in (0.1, 0.01) for s in (10, 20, 30)]
    assert values(space=space) == expected
    assert values(space=space, trials=4) == expected[:4]
    assert [type(each[STEPS]) for each in values(space=space)] == [int] * 6


def test_steps_of_a_range_end_at_its_end() -> None:
    space = {"parameters.a": {"range": [0, 0.3], "step": 0.1}}
    assert [each["parameters.a"] for each in values(job=WITH_PARAMETERS, space=space)] == [
        0.0,
        0.1,
        0.2,
        0.3,
    ]


def test_random_draws_follow_from_seed_and_number() -> None:
    drawn = partial(values, job=WITH_PARAMETERS)
    rates = {"log": [1e-4, 1e-1]}
    space = {
        RATE: rates,
        "parameters.a": {"range": [-1, 1]},
        "parameters.b": [1, 2],
    }
    few = drawn(space=space, method="random", trials=5, seed=7)
    many = drawn(space=space, method="random", trials=50, seed=7)
    assert many[:5] == few
    assert all(1e-4 <= each[RATE] <= 1e-1 and -1 <= each["parameters.a"] <= 1 for each in many)
    assert {each["parameters.b"] for each in many} == {1, 2}
    # About as many below as above the middle of a logarithmic scale.
    assert 10 < sum(each[RATE] < 10**-2.5 for each in many) < 40
    assert drawn(space=space, method="random", trials=5, seed=8) != few
    # Another field changes no draw of this one.
    alone = drawn(space={RATE: rates}, method="random", trials=5, seed=7)
    assert [each[RATE] for each in alone] == [each[RATE] for each in few]


@pytest.mark.parametrize("count", [6, 1000])
def test_random_draws_of_a_finite_space_differ(count: int) -> None:
    space = {RATE: [0.1, 0.01], STEPS: {"range": [1, count // 2], "step": 1}}
    drawn = values(space=space, method="random", trials=count)
    assert len({tuple(each.items()) for each in drawn}) == count


def test_jobs_of_repeats_differ_in_their_seeds() -> None:
    spec = sweep(repeats=2, seed=5)
    jobs = [job_of(spec, {RATE: 0.1}, 3, repeat) for repeat in (1, 2)]
    assert [job.training.seed for job in jobs] == [5, 6]
    assert [job.name for job in jobs] == ["sweep trial 3, repeat 1", "sweep trial 3, repeat 2"]
    own = sweep(repeats=2, job={**JOB, "training": {"seed": 9}})
    assert [job_of(own, {}, 1, repeat).training.seed for repeat in (1, 2)] == [9, 10]
    script = job_of(sweep(job=SCRIPT, repeats=2), {"parameters.lr": 0.1}, 1, 2)
    assert script.parameters == {"lr": 0.1, "seed": 1}
    assert job_of(sweep(job=SCRIPT), {}, 1, 1).parameters == {}


def test_seed_joins_a_part_that_varies_as_a_whole() -> None:
    space = {"training": [{"steps": 5}, {"steps": 6}]}
    spec = sweep(space=space, repeats=2, seed=7)
    planned = plan_configurations(spec)
    jobs = [job_of(spec, each.values, each.number, repeat) for each in planned for repeat in (1, 2)]
    assert [job.training.seed for job in jobs] == [7, 8, 7, 8]
    given = sweep(space={"training": [{"seed": 3}, {"steps": 6}]}, seed=7)
    jobs = [job_of(given, each.values, 1, 1) for each in plan_configurations(given)]
    assert [job.training.seed for job in jobs] == [3, 7]
    with pytest.raises(ExperimentError, match=r"space\.training"):
        plan_configurations(sweep(space={"training": [3]}, seed=7))


def test_space_may_replace_a_form_of_resources() -> None:
    elastic = {**JOB, "resources": {"min_workers": 1, "max_workers": 4}}
    spec = sweep(job=elastic, space={"resources.workers": [1, 2]})
    jobs = [job_of(spec, each.values, each.number, 1) for each in plan_configurations(spec)]
    assert [job.resources.workers for job in jobs] == [1, 2]
    assert not any(job.resources.is_elastic for job in jobs)


def test_parameter_need_only_be_used_by_the_job() -> None:
    swept = {"parameters.lr": [1, 2]}
    assert values(job=RATED, space=swept) == [{"parameters.lr": 1}, {"parameters.lr": 2}]
    arguments = {"script.args": [["${lr}"]], **swept}
    assert len(values(job=SCRIPT, space=arguments)) == 2


def stopping(low: int, high: int) -> dict[str, Any]:
    return {"early_stopping": {"asha": {"min_steps": low, "max_steps": high}}}


def test_early_stopping_sets_the_steps_of_jobs() -> None:
    training = job_of(sweep(**stopping(10, 90)), {}, 1, 1).training
    assert (training.steps, training.pause_at) == (90, (10, 30))
    assert training.evaluate_every_steps == 10
    own = {**JOB, "training": {"steps": 90, "evaluate_every_steps": 5}}
    assert job_of(sweep(job=own, **stopping(10, 90)), {}, 1, 1).training.evaluate_every_steps == 5
    null = {**JOB, "training": {"steps": None, "evaluate_every_steps": None}}
    assert job_of(sweep(job=null, **stopping(10, 90)), {}, 1, 1).training == training
    script = job_of(sweep(job=SCRIPT, **stopping(10, 90)), {}, 1, 1)
    assert script.training.pause_at == (10, 30)


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "empty space": ({"space": {}}, "space", "must not be empty"),
    "no values": ({"space": {RATE: []}}, f"space.{RATE}", "at least one value"),
    "value twice": ({"space": {RATE: [0.1, 0.2, 0.1]}}, f"space.{RATE}.2", "twice"),
    "a single value": ({"space": {RATE: 0.1}}, f"space.{RATE}", "must be a list of values"),
    "unknown form": ({"space": {RATE: {"rang": [0, 1]}}}, f"space.{RATE}.rang", "unknown key"),
    "one bound": ({"space": {RATE: {"range": [1]}}}, f"space.{RATE}.range", "two numbers"),
    "bounds that fall": ({"space": {RATE: {"log": [1, 0.1]}}}, f"space.{RATE}.log", "below"),
    "log of zero": ({"space": {RATE: {"log": [0, 1]}}}, f"space.{RATE}.log", "above 0"),
    "no step": ({"space": {STEPS: {"range": [1, 9], "step": 0}}}, f"space.{STEPS}.step", "above 0"),
    "endless steps": ({"space": {STEPS: {"range": [1, 9], "step": 5e-324}}},
                      f"space.{STEPS}.step", "1,000"),
    "step below the digits": ({"space": {RATE: {"range": [1e6, 1000000.000001], "step": 1e-7}}},
                              f"space.{RATE}.step", "12 digits"),
    "step without end": ({"space": {RATE: {"range": [0.1, 1], "step": 10**400}}},
                         f"space.{RATE}.step", "within"),
    "bound without end": ({"space": {STEPS: {"range": [1, 10**400], "step": 1}}},
                          f"space.{STEPS}.range", "within"),
    "too few draws": ({"space": {RATE: {"range": [0.1, 0.100001]}}, "method": "random",
                       "trials": 3}, "space", "2 different combinations"),
    "long values": ({"job": WITH_PARAMETERS,
                     "space": {"parameters.a": ["x" * 4000, "y" * 4000],
                               "parameters.b": {"range": [1, 50], "step": 1}},
                     "repeats": 10}, "space", "4 MB"),
    "a step alone": ({"space": {STEPS: {"step": 1}}}, f"space.{STEPS}.range", "two numbers"),
    "vast numbers": ({"space": {RATE: {"range": [0, 1e300]}}}, f"space.{RATE}.range", "within"),
    "continuous grid": ({"space": {RATE: {"range": [0.1, 1]}}}, f"space.{RATE}", "continuous"),
    "misspelt field": ({"space": {"training.stepz": [1]}}, "space.training.stepz", "'steps'"),
    "misspelt part": ({"space": {"trainin.steps": [1]}}, "space.trainin.steps", "'training'"),
    "field of a number": ({"space": {f"{STEPS}.x": [1]}}, f"space.{STEPS}.x", "must be an integer"),
    "bad value": ({"space": {RATE: [0.1, -3]}}, f"space.{RATE}", "must be more than 0"),
    "bad number": ({"space": {STEPS: {"range": [1, 9]}}, "method": "random", "trials": 2},
                   f"space.{STEPS}", "must be an integer"),
    "bad combination": ({"space": {"resources.workers": [1, 3]}},
                        "job.training.global_batch_size", "resources.workers 3"),
    "part of another": ({"space": {"training": [{}], STEPS: [1]}}, f"space.{STEPS}", "is part of"),
    "unknown parameter": ({"job": {**RATED, "parameters": {"lr": 1}},
                           "space": {"parameters.lrr": [1]}},
                          "space.parameters.lrr", "no parameter lrr, only lr; did you mean lr?"),
    "unused parameter": ({"job": SCRIPT, "space": {"parameters.batch": [1]}},
                         "space.parameters.batch", "give batch a value in job.parameters"),
    "undefined parameter": ({"job": RATED, "space": {"resources.workers": [1]}},
                            "job.script.args.1", "no parameter is called lr"),
    "the name": ({"space": {"name": ["a"]}}, "space.name", "other than name"),
    "zero trials": ({"trials": 0}, "trials", "at least 1"),
    "no trials": ({"method": "random"}, "trials", "is required"),
    "more trials than points": ({"trials": 3}, "trials", "at most 2"),
    "too many runs": ({"space": {STEPS: {"range": [1, 600], "step": 1}}, "repeats": 2},
                      "space", "1,000 runs"),
    "seed twice": ({"space": {"training.seed": [1, 2]}, "repeats": 2},
                   "space.training.seed", "repeats"),
    "part with the seed": ({"space": {"training": [{"steps": 1}, {"seed": 1}]}, "repeats": 2},
                           "space.training", "repeats"),
    "seeds beyond the last": ({"job": {**JOB, "training": {"seed": 2**63 - 1}}, "repeats": 2},
                              "job.training.seed", "less than"),
    "bad job": ({"job": {**JOB, "training": {"stepz": 1}}}, "job.training.stepz", "'steps'"),
    "pausing job": ({"job": {**JOB, "training": {"pause_at": [5]}}},
                    "job.training.pause_at", "leave it out"),
    "pausing trial": ({"space": {"training.pause_at": [[5]]}},
                      "space.training.pause_at", "leave it out"),
    "no job": ({"job": 3}, "job", "must be an object"),
    "misspelt key": ({"trails": 3}, "trails", "'trials'"),
    "no goal": ({"objective": {"metric": "f1"}}, "objective.goal", "a lower or a higher f1"),
    "misspelt objective": ({"objective": {"metric": "loss", "gaol": "min"}},
                           "objective.gaol", "'goal'"),
    "tpe without end": ({"method": "tpe"}, "trials", "is required"),
    "baseline of a sweep": ({"baseline": {RATE: 0.1}}, "baseline", "is for kind benchmark"),
    "random benchmark": ({"kind": "benchmark", "method": "random", "trials": 2},
                         "method", "runs every combination"),
    "benchmark with trials": ({"kind": "benchmark", "trials": 1}, "trials", "leave it out"),
    "unknown field of the baseline": ({"kind": "benchmark", "baseline": {STEPS: 1}},
                                      f"baseline.{STEPS}", f"its fields are {RATE}"),
    "unknown value of the baseline": ({"kind": "benchmark", "baseline": {RATE: 1}},
                                      f"baseline.{RATE}", "is not among its values in the space"),
    "vague baseline": ({"kind": "benchmark", "space": {RATE: [0.1, 0.2], STEPS: [1, 2]},
                        "baseline": {STEPS: 1}}, "baseline", f"give {RATE} as well"),
    "baseline that cannot run": ({"kind": "benchmark", "space": {"resources.workers": [1, 3]},
                                  "baseline": {"resources.workers": 3}},
                                 "baseline", "nothing can be compared with it: training.global_"),
    "benchmark of a misspelt field": ({"kind": "benchmark", "space": {"training.stepz": [1, 2]}},
                                      "space.training.stepz", "'steps'"),
    "scaling without workers": (scaling(space={RATE: [0.1]}), f"space.{WORKERS}", "is required"),
    "scaling over no workers": (scaling(space={WORKERS: []}), f"space.{WORKERS}", "is empty"),
    "scaling over one number": (scaling(space={WORKERS: [2]}), f"space.{WORKERS}", "at least two"),
    "workers twice": (scaling(space={WORKERS: [1, 2, 1]}), f"space.{WORKERS}.2", "given twice"),
    "workers without end": (scaling(space={WORKERS: {"range": [1, 4]}}), f"space.{WORKERS}",
                            "at least two"),
    "too many workers": (scaling(space={WORKERS: [1, 5000]}), f"space.{WORKERS}.1", "to 4,096"),
    "half a worker": (scaling(space={WORKERS: [0.5, 1]}), f"space.{WORKERS}.0", "a number of"),
    "unknown scaling": (scaling(scaling=["soft"]), "scaling.0", "one of strong, weak"),
    "scaling of a sweep": ({"scaling": ["weak"]}, "scaling", "is for kind scaling"),
    "too many points of scaling": (
        scaling(job={**JOB, "parameters": dict.fromkeys("abcdefghij", 0)},
                scaling=["strong", "weak"],
                space={WORKERS: [1, 2], **{f"parameters.{parameter}": list(range(30))
                                            for parameter in "abcdefghij"}}),
        "space", "1.77147e+15 combinations"),
    "baseline of scaling": (scaling(baseline={WORKERS: 1}), "baseline", "is for kind benchmark"),
    "random scaling": (scaling(method="random", trials=2), "method", "runs every combination"),
    "scaling of a loss": (scaling(objective={"metric": "loss"}), "objective.metric", "a speed"),
    "batch of strong scaling": (scaling(space={WORKERS: [1, 2], BATCH: [64, 128]}),
                                f"space.{BATCH}", "leave it out"),
    "batch of weak scaling": (scaling(space={WORKERS: [1, 2], BATCH: [64, 96]}, scaling=["weak"]),
                              f"space.{BATCH}", "[64, 128]: leave it out"),
    "uneven weak scaling": (scaling(space={WORKERS: [3, 4]}, scaling=["weak"]),
                            "scaling", "choose a multiple"),
    "weak scaling of a script": (scaling(job=SCRIPT, scaling=["weak"]), "scaling", "use strong"),
    "falling rungs": (stopping(9, 9), "early_stopping.asha.min_steps", "below max_steps (9)"),
    "misspelt stopping": ({"early_stopping": {"asha": {"min_steps": 1, "max_steps": 9, "eta": 3}}},
                          "early_stopping.asha.eta", "unknown key"),
    "steps beside rungs": ({**stopping(10, 90), "job": {**JOB, "training": {"steps": 100}}},
                           "job.training.steps", "must be early_stopping.asha.max_steps (90)"),
    "epochs beside rungs": ({**stopping(10, 90), "job": {**JOB, "training": {"epochs": 3}}},
                            "job.training.epochs", "leave it out"),
    "steps varied beside rungs": ({**stopping(10, 90), "space": {STEPS: [50, 90]}},
                                  f"space.{STEPS}", "or left out"),
    "pauses beside rungs": ({**stopping(10, 90), "job": {**JOB, "training": {"pause_at": [5]}}},
                            "job.training.pause_at", "leave it out"),
    "rare evaluation": ({**stopping(10, 90),
                         "job": {**JOB, "training": {"evaluate_every_steps": 20}}},
                        "job.training.evaluate_every_steps", "must be at most"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "message"), BAD.values(), ids=BAD)
def test_bad_experiment_is_refused_by_field(
    changes: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ExperimentError) as refused:
        plan_configurations(sweep(**changes))
    (problem,) = refused.value.problems
    assert problem.field == field
    assert message in problem.message


def test_benchmark_has_defaults_of_its_own() -> None:
    spec = parse_experiment(
        "{name: a, kind: benchmark, job: {name: b, task: {name: digits}},"
        " space: {parallelism.strategy: [ddp, fsdp]}}",
        "yaml",
    )
    assert (spec.method, spec.parallel, spec.warmup_steps) == ("grid", 1, 10)
    assert spec.objective.model_dump() == {
        "metric": "samples_per_second", "goal": "max", "at": "median",
    }  # fmt: skip
    assert validate_experiment(spec.document()) == spec
    schema = ExperimentSpec.model_json_schema()
    assert schema["required"] == ["name", "kind", "job", "space"]


def test_first_repeat_of_a_benchmark_is_predicted() -> None:
    strategies = {"parallelism.strategy": ["ddp", "fsdp"]}
    benchmark = {
        "name": "a", "kind": "benchmark", "repeats": 2, "space": strategies,
        "job": {"name": "b", "task": {"name": "digits"}},
    }  # fmt: skip
    spec = validate_experiment(benchmark)
    ddp = {"parallelism.strategy": "ddp"}
    assert [job_of(spec, ddp, 1, n).parallelism.predict for n in (1, 2)] == [True, False]
    spec = validate_experiment(
        {**benchmark, "space": {**strategies, "parallelism.predict": [False]}}
    )
    assert not job_of(spec, {**ddp, "parallelism.predict": False}, 1, 1).parallelism.predict


def test_strong_and_weak_scaling_share_the_fewest_workers() -> None:
    space = {WORKERS: [4, 1, 2]}
    assert values(**scaling(space=space)) == [{WORKERS: 4}, {WORKERS: 1}, {WORKERS: 2}]
    spec = sweep(**scaling(space=space, scaling=["weak", "strong"]))
    assert [each.values for each in plan_configurations(spec)] == [
        {WORKERS: 4, BATCH: 64}, {WORKERS: 4, BATCH: 256}, {WORKERS: 1, BATCH: 64},
        {WORKERS: 2, BATCH: 64}, {WORKERS: 2, BATCH: 128},
    ]  # fmt: skip
    assert validate_experiment(spec.document()) == spec
    assert spec.parallel == 1
    defaults = {"name": "a", "kind": "scaling", "job": JOB, "space": space}
    assert validate_experiment(defaults).scaling == ["strong"]


def test_cell_that_cannot_run_has_its_reason() -> None:
    space = {"resources.workers": [1, 2, 3], "parallelism.reshard_after_forward": [True, False]}
    planned = plan_configurations(sweep(kind="benchmark", space=space))
    assert [bool(each.problem) for each in planned] == [False, True, False, True, True, True]
    assert "fsdp" in planned[1].problem
    assert planned[4].problem.startswith("training.global_batch_size: ")
    assert "3" in planned[4].problem


def test_runs_of_a_benchmark_start_in_random_order() -> None:
    changes = {"kind": "benchmark", "space": {STEPS: list(range(1, 9))}, "repeats": 3}
    orders = []
    for seed in (0, 1, 1):
        spec = sweep(**changes, seed=seed)
        order = start_order(spec, plan_configurations(spec))
        assert [repeat for _, repeat in order] == [1] * 8 + [2] * 8 + [3] * 8
        blocks = [[number for number, _ in order[i : i + 8]] for i in (0, 8, 16)]
        assert all(sorted(block) == list(range(1, 9)) for block in blocks)
        assert blocks[0] != blocks[1] != blocks[2]
        orders.append(order)
    assert orders[0] != orders[1] == orders[2]
    spec = sweep(space={STEPS: [1, 2]}, repeats=2)
    assert start_order(spec, plan_configurations(spec)) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_experiment_is_read_from_yaml_and_json() -> None:
    spec = parse_experiment(
        "{name: a, kind: sweep, job: {name: b, task: {name: digits}}, method: random, trials: 2,"
        " space: {training.steps: [1, 2]}, objective: {metric: loss, at: best}}",
        "yaml",
    )
    assert parse_experiment(spec.model_dump_json(), "json") == spec
    assert spec.objective.goal == "min"
    for raw in ("[1]", "", "a: b: c"):
        with pytest.raises(ExperimentError):
            parse_experiment(raw, "yaml")


@pytest.mark.parametrize("rest", [{}, {"method": "grid", "objective": {"metric": "loss"}}])
def test_wrong_kind_is_the_only_problem(rest: dict[str, Any]) -> None:
    document = {"name": "a", "kind": "sweeep", "job": JOB, "space": {STEPS: [1, 2]}, **rest}
    with pytest.raises(ExperimentError) as refused:
        validate_experiment(document)
    (problem,) = refused.value.problems
    assert problem.field == "kind"
    assert problem.message.endswith("did you mean sweep?")
