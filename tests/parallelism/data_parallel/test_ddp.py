"""DDP with accumulation is one big batch; buffers are those of rank 0."""

import gc
import json
from pathlib import Path

import pytest
import torch
from support.cluster.attempts import RankServer
from support.ranks import ddp as ddp_ranks
from torch import nn

from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.data_parallel.logical_shards import LogicalShards

CPU = torch.device("cpu")


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_accumulation_over_ranks_equals_one_big_batch(
    ranks: RankServer, tmp_path: Path, world_size: int
) -> None:
    assert ranks.call("support.ranks.ddp:train", world_size, tmp_path) == [0] * world_size
    model, inputs, targets = ddp_ranks.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in zip(inputs, targets, strict=True):
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    states = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world_size)]
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(states[0][name], expected, rtol=1e-11, atol=1e-12)
        assert all(torch.equal(state[name], states[0][name]) for state in states)


def test_ddp_evaluates_with_saved_buffers(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.ddp:share_buffers", 2, tmp_path) == [0, 0]
    (saved, mine), (other, shared) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert not torch.equal(other["1.running_mean"], saved["1.running_mean"])
    for name, expected in saved.items():
        assert torch.equal(mine[name], expected)
        assert torch.equal(shared[name], expected)


def test_ddp_reports_a_different_model_on_all(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.ddp:differ", 3, tmp_path) == [0, 0, 0]
    message = (
        "ranks hold different models: parameter weight is [2, 6] of torch.float32 on ranks 0, 2, "
        "and [3, 6] of torch.float32 on rank 1; all nodes need the same code and data"
    )
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(3)] == [message] * 3


def test_ddp_reports_a_lost_peer(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.ddp:lose_one", 3, tmp_path) == [0, -9, 0]
    messages = [(tmp_path / f"{rank}.txt").read_text(encoding="utf-8") for rank in (0, 2)]
    for text in messages:
        assert "peer" in text
        assert "callback" not in text


def test_ddp_keeps_earlier_model_changes(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.ddp:wrap", 2, tmp_path) == [0, 0]


@pytest.mark.parametrize("world_size", [1, 2])
def test_ddp_names_unused_parameter_before_update(
    ranks: RankServer, tmp_path: Path, world_size: int
) -> None:
    assert ranks.call("support.ranks.ddp:leave_one_out", world_size, tmp_path) == [0] * world_size
    for rank in range(world_size):
        for kind, (before, *rest) in json.loads((tmp_path / f"{rank}.json").read_text()).items():
            if world_size == 1 and "shards" not in kind:
                assert not rest, "nothing is averaged, and torch leaves the parameter as it is"
                continue
            after, message = rest
            assert after == before, kind
            assert message.startswith("sometimes.weight got no gradient"), (kind, message)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_clip_scales_down_to_global_norm(dtype: torch.dtype) -> None:
    model = nn.Linear(120, 100, dtype=dtype)
    strategy = Replicas(model, device=CPU, bucket_mb=25)
    for parameter in model.parameters():
        # A narrow type need not hold the sum of squares.
        parameter.grad = torch.full_like(parameter, 20)
    norm = 20 * (120 * 100 + 100) ** 0.5
    assert float(strategy.clip(10.0)) == pytest.approx(norm, rel=1e-2)
    gradient = model.weight.grad
    assert gradient is not None
    assert float(gradient[0, 0]) == pytest.approx(20 * 10 / norm, rel=1e-2)
    strategy.clear_gradients()
    model.bias.grad = torch.ones_like(model.bias)  # alone, as where the others are frozen
    assert float(strategy.clip(None)) == pytest.approx(10, rel=1e-2)


def test_logical_shards_remove_their_hooks() -> None:
    model = nn.Linear(2, 1)
    for _ in range(3):
        LogicalShards(model, device=CPU, bucket_mb=25, shards=2)
    gc.collect()
    # Nothing public counts them.
    hooks: list[object] = [p._post_accumulate_grad_hooks for p in model.parameters()]
    assert not any(hooks)


def test_ddp_lays_out_buckets_on_gpu(ranks: RankServer, tmp_path: Path) -> None:
    """`device_ids` takes another way through DDP's forward pass, with or without a GPU."""
    assert ranks.call("support.ranks.ddp:lay_out_as_on_gpu", 1, tmp_path) == [0]
