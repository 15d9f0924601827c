"""Options without effect are refused at submission, and kept in stored specs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainhall.cluster.jobs.spec_changes import changed_spec
from trainhall.training.spec import JobSpec, SpecError, parse_spec
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.strategies import with_parallelism

DOCS = Path(__file__).parents[3] / "docs"
OWN = {"name": "package.module:Task"}


def document(**parts: Any) -> dict[str, Any]:
    training = {"steps": 10, "global_batch_size": 48, **parts.pop("training", {})}
    of_a_task = {
        "task": {"name": "digits", "params": {"hidden": [32, 16]}},
        "training": training,
    }
    work = {} if "script" in parts else of_a_task
    return {"name": "test", "resources": {"workers": 2}, **work, **parts}


def parsed(**parts: Any) -> JobSpec:
    return parse_spec(json.dumps(document(**parts)), "json")


@pytest.mark.parametrize(("parts", "field", "value", "message"), [
    ({"parallelism": {"schedule": "zbv"}}, "parallelism.schedule", "zbv",
     "has no effect under strategy ddp; leave it out, or set parallelism.strategy to pipeline"),
    ({"parallelism": {"strategy": "model", "schedule": "zbv"}}, "parallelism.schedule", "zbv",
     "has no effect under strategy model"),
    ({"parallelism": {"reshard_after_forward": False}}, "parallelism.reshard_after_forward",
     "false", "has no effect under strategy ddp"),
    ({"parallelism": {"strategy": "fsdp", "gradient_sync": {"bucket_mb": 1}}},
     "parallelism.gradient_sync.bucket_mb", "1.0", "has no effect under strategy fsdp"),
    ({"parallelism": {"strategy": "parameter_server", "gradient_sync": {"bucket_mb": 1}},
      "resources": {"workers": 3}},
     "parallelism.gradient_sync.bucket_mb", "1.0", "has no effect under strategy parameter_server"),
    ({"parallelism": {"schedule": "gpipe"}, "script": {"path": "/a.py"}},
     "parallelism.schedule", "gpipe", "is for tasks"),
    ({"parallelism": {"strategy": "fsdp", "gradient_sync": {"measure_links": True}}},
     "parallelism.gradient_sync.measure_links", "true", "has no effect under strategy fsdp"),
    ({"parallelism": {"gradient_sync": {"bucket_mb": 1}}, "script": {"path": "/a.py"}},
     "parallelism.gradient_sync.bucket_mb", "1.0", "is for tasks"),
    ({"task": OWN, "parallelism": {"sequence_parallel": True}}, "parallelism.sequence_parallel",
     "true", "needs tensor above 1, under strategy tensor, fsdp or pipeline; leave it out"),
    ({"task": OWN, "parallelism": {"strategy": "fsdp", "sequence_parallel": True}},
     "parallelism.sequence_parallel", "true", "needs tensor above 1"),
    ({"training": {"logical_shards": 6}}, "training.logical_shards", "6",
     "leave it out, or set training.reproducible to true"),
    ({"training": {"momentum": 0.5}}, "training.momentum", "0.5",
     "has no effect with optimizer adamw"),
    ({"training": {"learning_rate_schedule": {"kind": "cosine", "decay_every": 5}}},
     "training.learning_rate_schedule.decay_every", "5", "has no effect with kind cosine"),
    ({"training": {"learning_rate_schedule": {"decay_factor": 0.5}}},
     "training.learning_rate_schedule.decay_factor", "0.5", "has no effect with kind constant"),
    ({"training": {"learning_rate_schedule": {"final_ratio": 0.5}}},
     "training.learning_rate_schedule.final_ratio", "0.5", "has no effect with kind constant"),
])  # fmt: skip
def test_option_without_effect_is_refused(
    parts: dict[str, Any], field: str, value: str, message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        parsed(**parts)
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == (field, value)
    assert message in problem.message


def test_options_without_effect_are_reported_together() -> None:
    with pytest.raises(SpecError) as refused:
        parsed(parallelism={"schedule": "zbv"}, training={"momentum": 0.5, "logical_shards": 6})
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {"parallelism.schedule", "training.momentum", "training.logical_shards"}


@pytest.mark.parametrize("parts", [
    {"parallelism": {"strategy": "pipeline", "schedule": "gpipe"}},
    {"parallelism": {"strategy": "fsdp", "reshard_after_forward": False}},
    {"parallelism": {"gradient_sync": {"bucket_mb": 1}}, "training": {"reproducible": True}},
    {"parallelism": {"strategy": "tensor", "sequence_parallel": True}, "task": OWN},
    {"training": {"logical_shards": 6, "reproducible": True}},
    {"training": {"optimizer": "sgd", "momentum": 0.5}},
    {"training": {"learning_rate_schedule": {"kind": "cosine", "final_ratio": 0.5}}},
    {"training": {"learning_rate_schedule": {"kind": "step", "decay_every": 5}}},
    {"parallelism": {"strategy": "auto", "schedule": "zbv", "reshard_after_forward": False,
                     "sequence_parallel": True, "microbatches": 4,
                     "gradient_sync": {"bucket_mb": 1}}},
])  # fmt: skip
def test_effective_options_are_accepted(
    parts: dict[str, Any],
) -> None:
    parsed(**parts)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "pipeline"])
def test_explicit_defaults_are_accepted(strategy: str) -> None:
    spec = parsed(parallelism={"strategy": strategy})
    assert parse_spec(spec.model_dump_json(), "json") == spec


def test_planned_and_restored_specs_are_accepted() -> None:
    chosen = with_parallelism(
        parsed(parallelism={"strategy": "auto", "schedule": "zbv", "sequence_parallel": True}),
        2,
        {"strategy": "fsdp", "shard": 2},
    )
    assert chosen.parallelism.schedule == "1f1b"
    assert not chosen.parallelism.sequence_parallel
    own = {"strategy": "tensor", "sequence_parallel": True}
    stored = parsed(task=OWN, parallelism=own).model_dump(mode="json")
    restored = changed_spec(stored, None, {"strategy": "ddp"})
    assert restored.strategy == "ddp"
    assert parse_spec(restored.model_dump_json(), "json") == restored
    kept = changed_spec(stored, None, {"strategy": "fsdp", "tensor": 2})
    assert kept.parallelism.sequence_parallel
    # A stored spec, which no user submits again.
    stored = document(parallelism={"schedule": "zbv"}, training={"momentum": 0.5})
    assert validate_spec(stored).strategy == "ddp"
    changed_spec(validate_spec(stored).model_dump(mode="json"), {"workers": 3}, None)


def test_restore_refuses_options_without_effect() -> None:
    stored = parsed().model_dump(mode="json")
    with pytest.raises(SpecError) as refused:
        changed_spec(stored, None, {"strategy": "fsdp", "schedule": "zbv"})
    assert [problem.field for problem in refused.value.problems] == ["parallelism.schedule"]


def test_jobs_in_the_documents_are_valid() -> None:
    found = 0
    for path in sorted(DOCS.glob("*.md")):
        for block in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL):
            given = yaml.safe_load(block)
            if isinstance(given, dict) and {"task", "script"} & given.keys():
                given.setdefault("name", "test")
                parse_spec(json.dumps(given), "json", folder=Path("/"))
                found += 1
    assert found >= 5
