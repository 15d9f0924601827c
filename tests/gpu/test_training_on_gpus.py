"""Jobs on CUDA devices: every precision, a pause, the clocks, and strategies over several GPUs."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer
from support.groups.gpus import can_group

from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED
from trainhall.training.planning.planner import predicted_memory
from trainhall.training.spec.parse import validate_spec

NUMBER = torch.cuda.device_count()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUMBER == 0, reason="NOT TESTED: torch sees no CUDA device here"),
]


def job(workers: int, parallelism: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "language_model", "params": {"size": "tiny", "dropout": 0.1}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {
            "steps": 8, "global_batch_size": 24, "seed": 7, "gradient_clip": 1.0, **training,
        },
    }  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_paused_and_resumed_on_a_gpu_is_uninterrupted(
    ranks: RankServer, tmp_path: Path, precision: str
) -> None:
    spec = job(1, {}, precision=precision)
    whole = ranks.run(tmp_path / "whole", spec, device="cuda")
    assert whole.codes == [0], whole.stderr()
    first = ranks.run(tmp_path / "pieces", spec, device="cuda", command=Command.PAUSE)
    assert first.codes == [EXIT_PAUSED], first.stderr()
    newest = [e["data"]["name"] for e in reversed(first.events(kind="checkpoint"))]
    second = ranks.run(tmp_path / "pieces", spec, device="cuda", attempt=2, resume=newest)
    assert second.codes == [0], second.stderr()
    pieces = [value for _, value in first.curve("loss") + second.curve("loss")]
    # Some kernels add in an order of their own.
    assert pieces == pytest.approx([value for _, value in whole.curve("loss")], rel=1e-3)
    for name in ("forward_seconds", "backward_seconds", "optimizer_seconds", "peak_memory_bytes"):
        assert all(value > 0 for _, value in whole.curve(name)), name


def test_layers_computed_again_and_compiled_train_alike(ranks: RankServer, tmp_path: Path) -> None:
    losses = []
    every: list[dict[str, Any]] = [{}, {"activation_checkpointing": "full"}, {"compile": True}]
    for number, options in enumerate(every):
        spec = job(1, {}, **options)
        spec["task"]["params"]["dropout"] = 0.0
        attempt = ranks.run(tmp_path / str(number), spec, device="cuda")
        assert attempt.codes == [0], attempt.stderr()
        losses.append([value for _, value in attempt.curve("loss")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_memory_is_within_10_percent_of_the_plan(
    ranks: RankServer, tmp_path: Path, precision: str
) -> None:
    spec = job(1, {}, precision=precision)
    spec["task"]["params"] = {"layers": 4, "heads": 8, "width": 512, "context": 512}
    attempt = ranks.run(tmp_path, spec, device="cuda")
    assert attempt.codes == [0], attempt.stderr()
    peak = max(value for _, value in attempt.curve("peak_memory_bytes"))
    predicted = predicted_memory(validate_spec({"name": "test", **spec}), "cuda")
    assert sum(predicted.values()) == pytest.approx(peak, rel=0.1)


@pytest.fixture(scope="module")
def on_one_gpu(
    ranks: RankServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[float]]:
    """The losses of the job on one GPU, by precision."""

    @cache
    def losses(precision: str) -> list[float]:
        spec = without_dropout(1, {}, precision)
        attempt = ranks.run(tmp_path_factory.mktemp(precision), spec, device="cuda")
        assert attempt.codes == [0], attempt.stderr()
        return [value for _, value in attempt.curve("loss")]

    return losses


def without_dropout(workers: int, parallelism: dict[str, Any], precision: str) -> dict[str, Any]:
    spec = job(workers, parallelism, precision=precision)
    spec["task"]["params"]["dropout"] = 0.0
    return spec


@pytest.mark.skipif(
    not can_group(2), reason=f"NOT TESTED: needs 2 CUDA devices, torch sees {NUMBER}"
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    "parallelism",
    [
        {"strategy": "ddp"},
        {"strategy": "fsdp"},
        {"strategy": "tensor"},
        {"strategy": "tensor", "sequence_parallel": True},
        {"strategy": "pipeline"},
        {"strategy": "pipeline", "schedule": "zbv"},
        {"strategy": "model"},
        {"strategy": "parameter_server"},
    ],
    ids=lambda parallelism: " ".join(map(str, parallelism.values())),
)
def test_strategy_trains_as_one_gpu_does(
    ranks: RankServer,
    on_one_gpu: Callable[[str], list[float]],
    tmp_path: Path,
    parallelism: dict[str, Any],
    precision: str,
) -> None:
    attempt = ranks.run(tmp_path, without_dropout(2, parallelism, precision), device="cuda")
    assert attempt.codes == [0, 0], attempt.stderr()
    losses = [value for _, value in attempt.curve("loss")]
    assert losses == pytest.approx(on_one_gpu(precision), rel=1e-4 if precision == "fp32" else 2e-2)
