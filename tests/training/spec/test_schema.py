"""The JSON Schema that editors use says what the parser says, as far as a schema can."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.schema import editor_schema
from trainhall.training.spec.tasks import TASK_PARAMS

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
SCHEMA = editor_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TASK: dict[str, Any] = {"name": "x", "task": {"name": "digits"}}
SCRIPT: dict[str, Any] = {"name": "x", "script": {"path": "/a.py"}}


def reasons(document: Any) -> set[tuple[str, str]]:
    """`(field, keyword)` of every error and of what it consists of."""
    found, left = set(), list(VALIDATOR.iter_errors(document))
    while left:
        error = left.pop()
        found.add((".".join(map(str, error.absolute_path)), str(error.validator)))
        left += error.context
    return found


def test_schema_is_valid_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_fit_the_schema(example: Path) -> None:
    document = yaml.safe_load(example.read_text())
    if example.parent.name == "experiments":
        document = document["job"]
    if not isinstance(document, dict) or "name" not in document:
        pytest.skip("no job spec")
    assert reasons(document) == set()


@pytest.mark.parametrize(
    "document",
    [
        TASK,
        SCRIPT,
        {**TASK, "script": None},
        {**TASK, "training": {"steps": 3, "epochs": None}},
        {**TASK, "checkpoint": {"every_steps": 5}},
        {**TASK, "checkpoint": {"keep_best": 0, "metric": None}},
        {**TASK, "checkpoint": {"keep_best": 2, "metric": "eval_loss"}},
        {**TASK, "checkpoint": {"keep_best": 2, "metric": "bleu", "metric_mode": "max"}},
        {**TASK, "task": {"name": "synthetic", "params": {"step_seconds": 0.1}}},
        {**TASK, "training": {"learning_rate_schedule": {"kind": "step", "decay_every": 5}}},
    ],
)
def test_schema_accepts_parsed_specs(document: dict[str, Any]) -> None:
    validate_spec(document)
    assert reasons(document) == set()


@pytest.mark.parametrize(
    ("document", "field", "where", "keyword"),
    [
        ({"task": {"name": "digits"}}, "name", "", "required"),
        ({**TASK, "name": ""}, "name", "name", "minLength"),
        ({**TASK, "name": ["x"]}, "name", "name", "type"),
        ({**TASK, "traning": {}}, "traning", "", "additionalProperties"),
        ({"name": "x"}, "task", "", "oneOf"),
        ({**TASK, **SCRIPT}, "script", "", "oneOf"),
        ({**TASK, "task": {"name": "digit"}}, "task.name", "task.name", "enum"),
        (
            {**TASK, "task": {"name": "digits", "params": {"step_seconds": 1}}},
            "task.params.step_seconds", "task.params", "additionalProperties",
        ),
        (
            {**TASK, "task": {"name": "digits", "params": {"dropout": 2}}},
            "task.params.dropout", "task.params.dropout", "exclusiveMaximum",
        ),
        ({**TASK, "resources": {"device": "gpu"}}, "resources.device", "resources.device", "enum"),
        ({**TASK, "priority": 10**9}, "priority", "priority", "maximum"),
        ({**TASK, "training": {"steps": 1, "epochs": 1}}, "training.epochs", "training", "not"),
        ({**TASK, "training": {"steps": "many"}}, "training.steps", "training.steps", "type"),
        (
            {**TASK, "checkpoint": {"every_steps": 1, "every_seconds": 1}},
            "checkpoint.every_seconds", "checkpoint", "not",
        ),
        (
            {**TASK, "training": {"learning_rate_schedule": {"kind": "step"}}},
            "training.learning_rate_schedule.decay_every",
            "training.learning_rate_schedule", "required",
        ),
        ({**TASK, "checkpoint": {"keep_best": 1}}, "checkpoint.metric", "checkpoint", "required"),
        (
            {**TASK, "checkpoint": {"metric": "eval_loss"}},
            "checkpoint.metric", "checkpoint", "required",
        ),
        (
            {**TASK, "checkpoint": {"keep_best": 0, "metric": "eval_loss"}},
            "checkpoint.metric", "checkpoint.keep_best", "minimum",
        ),
        (
            {**TASK, "checkpoint": {"metric_mode": "max"}},
            "checkpoint.metric_mode", "checkpoint", "required",
        ),
        (
            {**TASK, "checkpoint": {"keep_best": 1, "metric": "bleu"}},
            "checkpoint.metric_mode", "checkpoint", "required",
        ),
        (
            {"name": "x", "script": {"path": "/a.py", "env": {"1A": "x"}}},
            "script.env.1A.[key]", "script.env", "additionalProperties",
        ),
    ],
)  # fmt: skip
def test_schema_refuses_with_the_parsers_reason(
    document: dict[str, Any], field: str, where: str, keyword: str
) -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec(document)
    assert field in {problem.field for problem in caught.value.problems}
    assert (where, keyword) in reasons(document)


@pytest.mark.parametrize("task", sorted(TASK_PARAMS))
def test_each_task_has_its_own_parameters(task: str) -> None:
    document = {**TASK, "task": {"name": task, "params": {"nonsense": 1}}}
    assert ("task.params", "additionalProperties") in reasons(document)


def test_fields_are_described_for_the_editor() -> None:
    training = SCHEMA["$defs"]["TrainingSpec"]["properties"]
    assert "Optimizer steps" in training["steps"]["description"]
    assert training["global_batch_size"]["default"] == 64
    digits = SCHEMA["$defs"]["DigitsParams"]["properties"]
    assert digits["hidden"]["description"] == "Width of each hidden layer."
