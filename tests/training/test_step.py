"""What the loop and `Trainer` share: a step is taken whole or not at all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainhall.parallelism.ddp import Replicas
from trainhall.training.clock import NoClock
from trainhall.training.precision import MixedPrecision
from trainhall.training.spec import Precision
from trainhall.training.step import OptimizerStep

CPU = torch.device("cpu")


class PeersGone(RuntimeError):
    pass


def squares(model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    return model(batch).square().mean(), ()


def test_gradients_that_turn_out_to_be_of_no_use_change_no_weight() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    seen: list[float] = []

    def look() -> None:
        seen.append(
            sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None)
        )
        assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
        if len(seen) == 1:
            raise PeersGone

    step = OptimizerStep(
        Replicas(model, device=CPU, bucket_mb=25),
        optimizer,
        MixedPrecision(Precision.FP32, CPU),
        NoClock(),
        gradient_clip=1.0,
        update_begins=look,
    )
    with pytest.raises(PeersGone):
        step.run([torch.ones(2, 3)], 1, squares)
    assert not optimizer.state
    model.zero_grad()
    step.run([torch.ones(2, 3)], 1, squares)
    assert seen[0] == seen[1] > 0
    assert not torch.equal(model.weight, before[0])
