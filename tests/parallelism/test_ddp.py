"""DDP with accumulation is one big batch."""

from pathlib import Path

import pytest
import torch
from support import ddp_ranks
from support.attempts import RankServer
from torch import nn


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_accumulation_over_ranks_equals_one_big_batch(
    ranks: RankServer, tmp_path: Path, world_size: int
) -> None:
    assert ranks.call("support.ddp_ranks:train", world_size, tmp_path) == [0] * world_size
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
