"""Every strategy computes what one rank alone computes, in float64, step by step."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer
from support.storage.data_files import SMALL_TEXT

from trainhall.training.link.launch import TracePlan
from trainhall.training.verify.compare import NotComparableError, RunComparator
from trainhall.training.verify.snapshot import Snapshot
from trainhall.training.verify.tolerance import TOLERANCES

STEPS = 3
"""The third is taken with an optimizer state that two steps made."""
JOBS: dict[str, dict[str, Any]] = {
    "mlp": {"task": {"name": "digits", "params": {"hidden": [18, 12]}}},
    "gpt": {
        "task": {
            "name": "language_model",
            "params": {"files": SMALL_TEXT, "size": "tiny", "context": 8},
        },
        "training": {"global_batch_size": 24},
    },
}
TRAINING = {
    "steps": STEPS, "global_batch_size": 48, "optimizer": "adamw", "learning_rate": 0.01,
    "gradient_clip": 0.1, "weight_decay": 0.1, "seed": 3,
}  # fmt: skip


RECOMPUTED = {"activation_checkpointing": "full"}

Steps = list[dict[str, Any]]


def compared(
    ranks: RankServer,
    folder: Path,
    job: dict[str, Any],
    reference: Path,
    function: str = "support.groups.rank_server:train",
) -> Steps:
    """The deviation of each step of a job from the reference."""
    plan = TracePlan(reference=str(reference), record=False, dtype="float64")
    attempt = ranks.run(folder, job, trace=plan, function=function)
    assert set(attempt.codes) == {0}, attempt.stderr()
    return [json.loads(line) for line in attempt.folder.comparison.read_text().splitlines()]


def job(kind: str, workers: int, parallelism: dict[str, Any], **training: Any) -> dict[str, Any]:
    base = JOBS[kind]
    return {
        "task": base["task"],
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {**TRAINING, **base.get("training", {}), **training},
    }


def synchronised(algorithm: str, **compression: Any) -> dict[str, Any]:
    """Several buckets, combined by an algorithm of ours."""
    return {"gradient_sync": {"algorithm": algorithm, "bucket_mb": 0.002, **compression}}


@pytest.fixture(scope="module")
def serial(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The steps of one rank alone, by model."""
    folders = {}
    for kind in JOBS:
        folder = tmp_path_factory.mktemp("serial")
        folders[kind] = folder / "reference"
        plan = TracePlan(reference=str(folders[kind]), record=True, dtype="float64")
        attempt = ranks.run(folder, job(kind, 1, {}), trace=plan)
        assert set(attempt.codes) == {0}, attempt.stderr()
    return folders


@pytest.mark.parametrize(
    ("kind", "workers", "parallelism", "training"),
    [
        ("mlp", 3, {"strategy": "ddp"}, {}),
        ("gpt", 2, {"strategy": "ddp"}, {"gradient_accumulation": 2}),
        ("mlp", 1, {"strategy": "fsdp"}, {}),
        ("mlp", 3, {"strategy": "fsdp"}, {"gradient_accumulation": 4}),
        ("mlp", 4, {"strategy": "fsdp", "data": 2}, {"gradient_accumulation": 2}),
        ("gpt", 2, {"strategy": "fsdp"}, {}),
        ("gpt", 2, {"strategy": "fsdp", "reshard_after_forward": False}, {}),
        ("gpt", 2, {"strategy": "tensor"}, {"gradient_accumulation": 2}),
        ("gpt", 4, {"strategy": "tensor", "data": 2, "sequence_parallel": True}, {}),
        ("mlp", 3, {"strategy": "tensor"}, {}),
        ("gpt", 4, {"strategy": "fsdp", "tensor": 2, "sequence_parallel": True}, {}),
        ("mlp", 4, {"strategy": "fsdp", "data": 2, "shard": 1, "tensor": 2}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "gpipe"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "microbatches": 4}, {"gradient_accumulation": 2}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "interleaved_1f1b"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "interleaved_zero_bubble"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "zbv"}, {}),
        ("mlp", 4, {"strategy": "pipeline", "data": 2}, {}),
        ("gpt", 4, {"strategy": "pipeline", "tensor": 2}, {}),
        ("gpt", 3, {"strategy": "model"}, {}),
        ("gpt", 1, {"strategy": "ddp"}, RECOMPUTED),
        ("gpt", 2, {"strategy": "fsdp"}, RECOMPUTED),
        ("gpt", 2, {"strategy": "tensor", "sequence_parallel": True}, RECOMPUTED),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "zbv"}, RECOMPUTED),
        ("gpt", 3, {"strategy": "parameter_server"}, {"gradient_accumulation": 2}),
        ("mlp", 5, {"strategy": "parameter_server", "servers": 2}, {}),
        ("gpt", 2, synchronised("ring"), {"gradient_accumulation": 2}),
        ("mlp", 3, synchronised("ring"), {}),
        ("mlp", 3, synchronised("tree"), {}),
        ("mlp", 3, synchronised("halving_doubling"), {}),
        ("mlp", 4, synchronised("halving_doubling"), {}),
        ("mlp", 3, synchronised("hierarchical"), {}),
        ("mlp", 3, synchronised("naive"), {}),
        ("mlp", 4, {**synchronised("parameter_server"), "servers": 3}, {}),
        ("gpt", 2, synchronised("native", compression="topk", ratio=1), {}),
        ("mlp", 3, synchronised("ring", compression="powersgd", ratio=1), {}),
        ("mlp", 3, synchronised("ring", compression="bf16"), {}),
        ("gpt", 2, synchronised("native", compression="fp16"), {}),
    ],
)
def test_strategy_matches_a_single_rank(
    ranks: RankServer,
    tmp_path: Path,
    serial: dict[str, Path],
    kind: str,
    workers: int,
    parallelism: dict[str, Any],
    training: dict[str, Any],
) -> None:
    spec = job(kind, workers, parallelism, **training)
    found = compared(ranks, tmp_path, spec, serial[kind])
    assert [step["step"] for step in found] == list(range(1, STEPS + 1))
    assert [step["first"] for step in found if step["beyond"]] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "parallelism",
    [
        {"strategy": "pipeline", "data": 2, "tensor": 2},
        {
            "strategy": "pipeline", "data": 2, "tensor": 2, "sequence_parallel": True,
            "schedule": "interleaved_zero_bubble",
        },
        {"strategy": "fsdp", "data": 2, "tensor": 2},
    ],
)  # fmt: skip
def test_3d_mesh_matches_a_single_rank(
    ranks: RankServer, tmp_path: Path, serial: dict[str, Path], parallelism: dict[str, Any]
) -> None:
    found = compared(ranks, tmp_path, job("gpt", 8, parallelism), serial["gpt"])
    assert [step["step"] for step in found] == list(range(1, STEPS + 1))
    assert [step["first"] for step in found if step["beyond"]] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "parallelism"),
    [
        (1, {}),
        (2, {"strategy": "fsdp"}),
        (2, {"strategy": "tensor"}),
        (2, {"strategy": "pipeline"}),
    ],
)
def test_compiled_layers_compute_the_same(
    ranks: RankServer,
    tmp_path: Path,
    serial: dict[str, Path],
    workers: int,
    parallelism: dict[str, Any],
) -> None:
    spec = job("gpt", workers, parallelism, compile=True)
    found = compared(ranks, tmp_path, spec, serial["gpt"])
    assert [step["first"] for step in found if step["beyond"]] == []


@pytest.mark.parametrize(
    ("bug", "kind", "strategy", "first"),
    [
        ("wrong_scale", "mlp", "fsdp", ("gradient", "4.bias")),
        # What is wrong behind layer 4 makes the gradients of layers 2 and 0 wrong, in this order.
        ("wrong_backward", "mlp", "ddp", ("gradient", "2.bias")),
        ("skipped_all_reduce", "mlp", "ddp", ("gradient", "2.weight")),
        # The gradients are right, and what is made of them is not.
        ("local_norm", "mlp", "fsdp", ("weight", "0.weight")),
        ("lost_addition", "mlp", "ddp", ("gradient", "4.bias")),
        ("forgotten_tie", "gpt", "pipeline", ("gradient", "embedding.tokens.weight")),
    ],
)
def test_planted_bug_is_located(
    ranks: RankServer,
    tmp_path: Path,
    serial: dict[str, Path],
    bug: str,
    kind: str,
    strategy: str,
    first: tuple[str, str],
) -> None:
    workers, parallelism = 2, {"strategy": strategy}
    if bug == "lost_addition":
        workers, parallelism = 3, synchronised("ring")  # two ranks have another schedule
    spec = job(kind, workers, parallelism)
    found = compared(ranks, tmp_path, spec, serial[kind], f"support.ranks.trace:{bug}")
    assert (found[0]["first"]["kind"], found[0]["first"]["name"]) == first
    assert max(found[0][kind] for kind in ("gradient", "gradient_norm")) > 1e-3


def snapshot(a: float, *, loss: float = 1.0, step: int = 1) -> Snapshot:
    tensors = {"b": torch.tensor([1.0, 0.0]), "a": torch.tensor([a, 4.0])}
    return Snapshot(step, loss, 2.0, tensors, {**tensors, "zero": torch.zeros(2)})


def test_difference_is_measured_by_the_norm() -> None:
    comparator = RunComparator(TOLERANCES["float64"], ["b", "a", "zero"], ["b", "a"])
    assert comparator.compare(snapshot(3.0), snapshot(3.0)) == {
        "step": 1, "loss": 0.0, "gradient_norm": 0.0, "gradient": 0.0, "weight": 0.0,
        "beyond": 0, "first": None,
    }  # fmt: skip
    found = comparator.compare(snapshot(3.0), snapshot(3.5, loss=1.5))
    assert found["gradient"] == found["weight"] == 0.1
    assert found["loss"] == 0.5
    assert found["beyond"] == 3
    assert found["first"] == {"kind": "gradient", "name": "a", "relative": 0.1}


def test_near_zero_gradients_use_relative_error() -> None:
    comparator = RunComparator(TOLERANCES["float64"], ["b", "a", "zero"], ["b", "a"])
    found = snapshot(3.0)
    rounded = Snapshot(
        1, 1.0, 2.0, found.gradients, {**found.weights, "zero": torch.ones(2) * 1e-15}
    )
    assert comparator.compare(found, rounded)["first"] is None


def test_nan_differs_and_other_parameters_cannot_be_compared() -> None:
    comparator = RunComparator(TOLERANCES["float32"], ["b", "a"], ["a", "b"])
    nan = comparator.compare(snapshot(3.0), snapshot(float("nan")))
    assert nan["first"]["name"] == "a"
    assert nan["gradient"] != nan["gradient"]
    other = Snapshot(1, 1.0, 2.0, {"b": torch.ones(2)}, {})
    with pytest.raises(NotComparableError, match="the gradient of a is in one of the runs alone"):
        comparator.compare(snapshot(3.0), other)
