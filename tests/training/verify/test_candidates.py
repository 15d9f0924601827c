"""The strategies and meshes under which a job is compared."""

from typing import Any

import pytest

from trainhall.parallelism.degrees import DEGREES
from trainhall.training.spec.parse import validate_spec
from trainhall.training.verify.candidates import (
    STRATEGIES,
    WHOLE,
    Candidate,
    Partition,
    candidates,
    comparable,
    serial,
)

GPT = {"name": "language_model", "params": {"size": "tiny", "dropout": 0.1}}
CNN = {"name": "mnist", "params": {"root": "/data"}}


def all_of(task: dict[str, Any], workers: int, **training: Any) -> list[Candidate]:
    spec = validate_spec({"name": "job", "task": task, "training": training})
    return candidates(comparable(spec, 20), workers, STRATEGIES, {})


@pytest.mark.parametrize("workers", [1, 2, 4, 6, 8])
def test_candidates_cover_every_mesh_once(workers: int) -> None:
    found = all_of(GPT, workers, global_batch_size=48)
    names = [(each.strategy, each.mesh) for each in found]
    assert len(names) == len(set(names))
    for each in found:
        if each.spec is None:
            assert each.refusal
            continue
        assert each.spec.resources.workers == each.spec.degrees.world_size == workers
        assert each.spec.parallelism.strategy == each.strategy
        assert workers == 1 or getattr(each.spec.degrees, DEGREES[each.strategy][0]) > 1 or (
            each.strategy == "parameter_server"
        )  # fmt: skip


def test_candidates_include_2d_meshes_and_options() -> None:
    names = {f"{c.strategy}: {c.mesh}" for c in all_of(GPT, 4, global_batch_size=48) if c.spec}
    assert names >= {
        "ddp: data 4", "ddp: data 4, ring", "ddp: data 4, hierarchical",
        "fsdp: shard 4", "fsdp: shard 4, no resharding", "fsdp: shard 2 × data 2",
        "fsdp: shard 2 × tensor 2", "fsdp: shard 2 × tensor 2, sequence parallel",
        "tensor: tensor 2 × data 2", "tensor: tensor 2 × data 2, sequence parallel",
        "pipeline: pipeline 4", "pipeline: pipeline 4, gpipe", "pipeline: pipeline 2 × data 2",
        "pipeline: pipeline 2 × data 2, interleaved_1f1b", "pipeline: pipeline 2 × data 2, zbv",
        "pipeline: pipeline 2 × data 2, interleaved_zero_bubble", "model: pipeline 4",
        "model: pipeline 2 × data 2",
    }  # fmt: skip
    assert {name.partition(":")[0] for name in names} == set(STRATEGIES)


def test_candidates_exclude_with_a_reason() -> None:
    refusals = {f"{c.strategy}: {c.mesh}": c.refusal for c in all_of(CNN, 4) if c.spec is None}
    assert refusals["tensor: tensor 4"].startswith("the model declares no layers that tensor")
    assert refusals["pipeline: pipeline 4"].startswith("the model has 3 layers, fewer than the")
    # An option of a mesh that does not fit is not listed again.
    assert "pipeline: pipeline 4, gpipe" not in refusals
    odd = {c.mesh: c.refusal for c in all_of(CNN, 4, global_batch_size=6) if c.strategy == "ddp"}
    assert odd["data 4"].startswith("batch size 6 is not divisible by 4 (4 workers)")


def test_candidates_draw_nothing_mesh_dependent() -> None:
    spec = validate_spec(
        {
            "name": "job",
            "task": GPT,
            "training": {
                "epochs": 3,
                "precision": "bf16",
                "gradient_accumulation": 2,
                "pause_at": [9],
            },
            "checkpoint": {"every_steps": 5},
        }
    )
    document = comparable(spec, 7)
    whole = serial(document, WHOLE)
    assert whole.task is not None
    assert whole.task.params["dropout"] == 0.0
    assert (whole.training.steps, whole.training.epochs) == (7, None)
    assert (whole.training.precision, whole.checkpoint.every_steps) == ("fp32", None)
    assert whole.resources.workers == 1
    parts = serial(document, Partition(samples=2, microbatches=4))
    assert parts.training.gradient_accumulation == 16
    assert spec.task is not None
    assert spec.task.params["dropout"] == 0.1


def test_candidates_include_the_jobs_algorithm() -> None:
    spec = validate_spec(
        {
            "name": "job",
            "task": GPT,
            "resources": {"workers": 2},
            "parallelism": {"gradient_sync": {"algorithm": "ring", "bucket_mb": 3}},
        }
    )
    own = spec.parallelism.model_dump(mode="json", exclude_unset=True)
    found = candidates(comparable(spec, 5), 2, ["ddp"], own)
    assert [c.mesh for c in found] == [
        f"data 2, {name}" for name in (
            "ring", "native", "tree", "halving_doubling", "hierarchical", "parameter_server",
            "naive", "ring fp16", "ring bf16", "ring topk at ratio 1",
            "ring powersgd at ratio 1",
        )
    ]  # fmt: skip
    assert {c.spec.parallelism.gradient_sync.bucket_mb for c in found if c.spec} == {3}


def test_candidates_use_no_lossy_compression() -> None:
    sync = {"compression": "topk", "ratio": 0.02}
    document = {
        "name": "job", "task": GPT, "resources": {"workers": 2},
        "parallelism": {"gradient_sync": sync},
    }  # fmt: skip
    spec = validate_spec(document)
    own = spec.parallelism.model_dump(mode="json", exclude_unset=True)
    found = candidates(comparable(spec, 5), 2, ["ddp"], own)
    asked = [c.spec.gradient_sync for c in found if c.spec]
    assert {(a.compression, a.ratio) for a in asked} == {
        ("topk", 1.0), ("powersgd", 1.0), ("none", None), ("fp16", None), ("bf16", None),
    }  # fmt: skip
    (refusal,) = {c.refusal for c in found if c.spec is None}
    assert "cannot carry topk" in refusal


def test_candidates_keep_the_jobs_microbatches() -> None:
    spec = validate_spec(
        {
            "name": "job",
            "task": GPT,
            "resources": {"workers": 2},
            "parallelism": {"strategy": "pipeline", "microbatches": 8},
        }
    )
    own = spec.parallelism.model_dump(mode="json", exclude_unset=True)
    found = candidates(comparable(spec, 5), 2, ["ddp", "pipeline"], own)
    assert {c.strategy: c.partition for c in found if c.spec} == {
        "ddp": Partition(samples=2),
        "pipeline": Partition(microbatches=8),
    }
