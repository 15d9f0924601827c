"""JSON Schema of a job spec, for editors.

Rules over several numbers (a batch size divisible by the workers) are left to the parser.
"""

from typing import Any

from trainhall.training.spec.job import JobSpec
from trainhall.training.spec.tasks import TASK_PARAMS

Schema = dict[str, Any]


def editor_schema() -> Schema:
    """Return the JSON Schema (2020-12), with parameters by the task's name."""
    schema = JobSpec.model_json_schema()
    definitions: Schema = schema["$defs"]
    _add_params(definitions)
    _exclude(definitions["TrainingSpec"], "steps", "epochs")
    _exclude(definitions["CheckpointSpec"], "every_steps", "every_seconds")
    definitions["ResourcesSpec"] |= _one_form_of_resources()
    definitions["CheckpointSpec"]["allOf"] = _best_checkpoints()
    definitions["LearningRateSchedule"] |= _when(
        "kind", "step", {"required": ["decay_every"], "properties": {"decay_every": _present()}}
    )
    # Only names of variables: a pattern alone would let other keys pass unchecked.
    definitions["ScriptSpec"]["properties"]["env"]["additionalProperties"] = False
    schema["oneOf"] = [
        {"required": [name], "properties": {name: _present()}} for name in ("task", "script")
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trainhall job spec",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _add_params(definitions: Schema) -> None:
    task = definitions["TaskSpec"]
    own_class = {"pattern": r"^[^:\s]+:[^:\s]+$"}
    task["properties"]["name"] |= {"anyOf": [{"enum": sorted(TASK_PARAMS)}, own_class]}
    choices = []
    for name, params in sorted(TASK_PARAMS.items()):
        own = params.model_json_schema()
        definitions |= own.pop("$defs", {})
        definitions[params.__name__] = own
        there: Schema = {"properties": {"params": {"$ref": f"#/$defs/{params.__name__}"}}}
        if own.get("required"):
            there["required"] = ["params"]
        choices.append(_when("name", name, there))
    task["allOf"] = choices


def _one_form_of_resources() -> Schema:
    """Allow `workers`, or `max_workers` with or without `min_workers`."""
    fixed: Schema = {"required": ["workers"]}
    most: Schema = {"required": ["max_workers"], "properties": {"max_workers": _present()}}
    least: Schema = {"required": ["min_workers"], "properties": {"min_workers": _present()}}
    return {"not": {"allOf": [fixed, {"anyOf": [least, most]}]}, "if": least, "then": most}


def _best_checkpoints() -> list[Schema]:
    """Require `keep_best`, `metric` and `metric_mode` of each other."""
    some: Schema = {"required": ["keep_best"], "properties": {"keep_best": {"minimum": 1}}}
    metric: Schema = {"required": ["metric"], "properties": {"metric": _present()}}
    mode: Schema = {"required": ["metric_mode"], "properties": {"metric_mode": _present()}}
    infers_mode: Schema = {"properties": {"metric": {"pattern": "(loss|accuracy)$"}}}
    return [
        {"if": some, "then": metric},
        {"if": metric, "then": some},
        {"if": mode, "then": metric},
        {"if": {"allOf": [metric, {"not": infers_mode}]}, "then": mode},
    ]


def _when(key: str, value: str, then: Schema) -> Schema:
    return {"if": {"required": [key], "properties": {key: {"const": value}}}, "then": then}


def _exclude(model: Schema, first: str, second: str) -> None:
    both = {first: _present(), second: _present()}
    model["not"] = {"required": [first, second], "properties": both}


def _present() -> Schema:
    """Allow a key to be there and hold nothing, which means the same as its absence."""
    return {"not": {"type": "null"}}
