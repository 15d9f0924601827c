"""Suggestions for unknown keys of a job spec."""

from typing import Any

import pytest

from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.keys import ALIASES, unknown_key_message
from trainhall.training.spec.parameters import MAX_PARAMETERS
from trainhall.training.spec.parse import validate_spec

DIGITS = {"name": "a", "task": {"name": "digits"}, "training": {"steps": 1}}


def errors(data: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        validate_spec({**DIGITS, **data})
    return [(problem.field, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("data", "field", "meant"),
    [
        ({"training": {"steps": 1, "lr": 0.1}}, "training.lr", "'learning_rate'"),
        ({"training": {"steps": 1, "batch_size": 8}}, "training.batch_size", "'global_batch_size'"),
        ({"lr": 0.1}, "lr", "'training.learning_rate'"),
        ({"workers": 2}, "workers", "'resources.workers'"),
        ({"image": "x"}, "image", "'environment.image'"),
        ({"steps": 20}, "steps", "'training.steps'"),
        ({"epochs": 20}, "epochs", "'training.epochs'"),
        ({"batch_size": 8}, "batch_size", "'training.global_batch_size'"),
        ({"learning_rat": 8}, "learning_rat", "'training.learning_rate'"),
        ({"training": {"workers": 2}}, "training.workers", "'resources.workers'"),
        ({"training": {"priority": 2}}, "training.priority", "'priority' at the top of the spec"),
        (
            {"parallelism": {"compression": "topk"}},
            "parallelism.compression",
            "'parallelism.gradient_sync.compression'",
        ),
        (
            {"task": {"name": "digits", "params": {"learning_rate": 1}}},
            "task.params.learning_rate",
            "'training.learning_rate'",
        ),
        # Its own part is nearer, though another has one like it.
        ({"trainning": {}}, "trainning", "'training'"),
        ({"training": {"steps": 1, "stepz": 2}}, "training.stepz", "'steps'"),
    ],
)
def test_misplaced_key_gets_a_suggestion(data: dict[str, Any], field: str, meant: str) -> None:
    assert (field, f"unknown key; did you mean {meant}?") in errors(data)


SCRIPT = {"name": "a", "script": {"path": "/a.py", "args": ["${epochs}"]}}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lr", "parameters.lr"),
        ("momentum", "parameters.momentum"),
        ("epoch", "parameters.epochs"),
        ("batch_size", "parameters.batch_size"),
        ("priorty", "priority"),
        ("gpus", "resources.workers"),
    ],
)
def test_key_of_a_script_suggests_its_parameter(key: str, meant: str) -> None:
    data = {**SCRIPT, "parameters": {"momentum": 0.9, "epochs": 1}, key: 1}
    with pytest.raises(SpecError) as caught:
        validate_spec(data)
    assert (key, f"unknown key; did you mean '{meant}'?") in [
        (problem.field, problem.message) for problem in caught.value.problems
    ]


@pytest.mark.parametrize("key", ["command", "mounts"])
def test_foreign_key_gets_no_wrong_suggestion(key: str) -> None:
    ((_, message),) = errors({key: "x"})
    assert message.startswith("unknown key; known here: api_token, checkpoint, code, ")


def test_key_of_several_parts_is_not_guessed() -> None:
    ((_, message),) = errors({"resources": {"path": "/x"}})
    assert message.startswith("unknown key; known here: device, ")


def test_foreign_key_name_suggests_ours() -> None:
    for meant in ALIASES.values():
        fields: Any = JobSpec
        for name in meant.split("."):
            fields = fields.model_fields[name].annotation


def test_task_as_text_shows_correct_form() -> None:
    assert errors({"task": "digits"}) == [("task", "must be an object; write task: {name: digits}")]
    ((field, message),) = errors({"task": None, "script": "train.py"})
    assert (field, message) == (
        "script", "must be an object; write script: {path: train.py}"
    )  # fmt: skip
    assert errors({"task": "a {b"}) == [("task", "must be an object; write task: {name: …}")]


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (
            {"metric": "eval_loss"},
            "metric",
            "must be an object, such as {name: eval_accuracy, goal: max}",
        ),
        (
            {"task": None, "script": {"path": "/a.py", "args": "--lr 0.1"}},
            "script.args",
            'must be a list, such as ["--lr", "0.1"]',
        ),
        (
            {"task": None, "script": {"path": "/a.py", "env": "NCCL_DEBUG=INFO"}},
            "script.env",
            "must be an object, such as {NCCL_DEBUG: INFO}",
        ),
    ],
)
def test_part_as_text_shows_an_example(document: dict[str, Any], field: str, message: str) -> None:
    assert errors(document) == [(field, message)]


@pytest.mark.parametrize("args", [5, True, "--lr", {"lr": 1}, [1, None, "${rate}"]])
def test_key_of_a_script_survives_wrong_arguments(args: Any) -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec({"name": "a", "script": {"path": "/a.py", "args": args}, "epochs": 1})
    assert any(problem.field == "epochs" for problem in caught.value.problems)


def test_key_of_a_script_resembles_possible_parameters_alone() -> None:
    def suggests(names: list[str], key: str) -> bool:
        data = {**SCRIPT, "parameters": dict.fromkeys(names, 1), key: 1}
        return "parameters." in unknown_key_message((key,), data)

    many = [f"rate_{i}" for i in range(MAX_PARAMETERS)]
    assert suggests([*many[1:], "zebras"], "zebra")
    assert not suggests([*many, "zebras"], "zebra"), "no job has so many"
    assert not suggests(["zebra" * 13], "zebra" * 12), "no name is so long"
