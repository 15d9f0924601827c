"""Every strategy computes what one rank alone computes, in float64, step by step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.attempts import RankServer

from trainhall.training.verify.compare import differences
from trainhall.training.verify.trace import Trace

STEPS = 10
JOBS: dict[str, dict[str, Any]] = {
    "mlp": {"task": {"name": "digits", "params": {"hidden": [18, 12]}}},
    "gpt": {
        "task": {"name": "language_model", "params": {"size": "tiny", "context": 8}},
        "training": {"global_batch_size": 24},
    },
}
TRAINING = {
    "steps": STEPS, "global_batch_size": 48, "optimizer": "adamw", "learning_rate": 0.01,
    "gradient_clip": 0.5, "weight_decay": 0.1, "seed": 3,
}  # fmt: skip


def traced(ranks: RankServer, folder: Path, job: dict[str, Any], function: str = "sound") -> Trace:
    attempt = ranks.run(folder, job, function=f"support.trace_ranks:{function}")
    assert set(attempt.codes) == {0}, attempt.stderr()
    return Trace.load(attempt.folder.path / "trace.safetensors")


def job(kind: str, workers: int, parallelism: dict[str, Any], **training: Any) -> dict[str, Any]:
    base = JOBS[kind]
    return {
        "task": base["task"],
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {**TRAINING, **base.get("training", {}), **training},
    }


@pytest.fixture(scope="module")
def serial(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    return {
        kind: traced(ranks, tmp_path_factory.mktemp("serial"), job(kind, 1, {})) for kind in JOBS
    }


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
        ("gpt", 2, {"strategy": "tensor", "sequence_parallel": True}, {}),
        ("gpt", 4, {"strategy": "tensor", "data": 2, "sequence_parallel": True}, {}),
        ("mlp", 3, {"strategy": "tensor"}, {}),
        ("gpt", 4, {"strategy": "fsdp", "tensor": 2}, {}),
        ("gpt", 4, {"strategy": "fsdp", "tensor": 2, "sequence_parallel": True}, {}),
        ("mlp", 4, {"strategy": "fsdp", "data": 2, "shard": 1, "tensor": 2}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "gpipe"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "microbatches": 4}, {"gradient_accumulation": 2}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "interleaved_1f1b"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "interleaved_zero_bubble"}, {}),
        ("gpt", 2, {"strategy": "pipeline", "schedule": "zbv"}, {}),
        ("mlp", 4, {"strategy": "pipeline", "data": 2}, {}),
        ("gpt", 3, {"strategy": "model"}, {}),
    ],
)
def test_a_strategy_computes_what_one_rank_computes(
    ranks: RankServer,
    tmp_path: Path,
    serial: dict[str, Trace],
    kind: str,
    workers: int,
    parallelism: dict[str, Any],
    training: dict[str, Any],
) -> None:
    found = traced(ranks, tmp_path, job(kind, workers, parallelism, **training))
    assert [str(each) for each in differences(serial[kind], found)][:5] == []


@pytest.mark.parametrize(
    ("bug", "kind", "strategy", "seen_in"),
    [
        ("wrong_scale", "mlp", "fsdp", "gradient of 0.bias at step 1"),
        ("skipped_all_reduce", "mlp", "ddp", "gradient of 2.weight at step 1"),
        ("gpt", 3, {"strategy": "parameter_server"}, {"gradient_accumulation": 2}),
        ("mlp", 5, {"strategy": "parameter_server", "servers": 2}, {}),
        ("local_norm", "mlp", "fsdp", "gradient_norm at step 1"),
        ("forgotten_tie", "gpt", "pipeline", "gradient of embedding.tokens.weight at step 1"),
    ],
)
def test_a_planted_bug_is_seen(
    ranks: RankServer,
    tmp_path: Path,
    serial: dict[str, Trace],
    bug: str,
    kind: str,
    strategy: str,
    seen_in: str,
) -> None:
    found = traced(ranks, tmp_path, job(kind, 2, {"strategy": strategy}), bug)
    first = next(differences(serial[kind], found))
    assert str(first).startswith(seen_in)
    assert first.relative > 1e-3


def test_a_difference_is_named_with_its_size() -> None:
    def trace(weight: float, loss: float = 1.0) -> Trace:
        tensors = {"a": torch.tensor([weight, 4.0]), "b": torch.tensor([1.0])}
        return Trace([loss], [2.0], [tensors], tensors)

    assert list(differences(trace(1.0), trace(1.0))) == []
    assert [str(d) for d in differences(trace(1.0), trace(3.0))] == [
        "gradient of a at step 1 differs by 5.0e-01", "weight of a at step 1 differs by 5.0e-01",
    ]  # fmt: skip
    assert len(list(differences(trace(1.0), trace(1.0, float("nan"))))) == 1
    with pytest.raises(ValueError, match="1 steps against 0"):
        list(differences(trace(1.0), Trace()))
