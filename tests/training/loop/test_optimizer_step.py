"""The optimizer step of the loop and `Trainer` is taken whole or not at all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.training.common.step_clock import StepClock
from trainhall.training.loop.compression_state import CompressionState
from trainhall.training.loop.optimizer_step import OptimizerStep
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.spec import Precision

CPU = torch.device("cpu")


class PeersGoneError(RuntimeError):
    pass


def squares(model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    return model(batch).square().mean(), ()


def test_unusable_gradients_change_no_weight() -> None:
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
            raise PeersGoneError

    step = OptimizerStep(
        Replicas(model, device=CPU, bucket_mb=25),
        optimizer,
        MixedPrecision(Precision.FP32, CPU),
        StepClock(),
        gradient_clip=1.0,
        update_begins=look,
    )
    with pytest.raises(PeersGoneError):
        step.run([torch.ones(2, 3)], 1, squares)
    assert not optimizer.state
    model.zero_grad()
    step.run([torch.ones(2, 3)], 1, squares)
    assert seen[0] == seen[1] > 0
    assert not torch.equal(model.weight, before[0])


class WithResidual:
    """A model of one weight, of which a step at a rate of 1 takes the gradient of 1 and the
    pending residual."""

    def __init__(self, precision: Precision) -> None:
        self.model = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.strategy = Replicas(self.model, device=CPU, bucket_mb=25)
        self.overflows = self.breaks_off = False
        self.step = OptimizerStep(
            self.strategy,
            torch.optim.SGD(self.model.parameters(), lr=1.0, fused=True),
            MixedPrecision(precision, CPU),
            StepClock(),
            gradient_clip=None,
            update_begins=self.look,
        )

    def look(self) -> None:
        if self.breaks_off:
            raise PeersGoneError

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = model(batch).float().mean()
        return (loss * torch.inf if self.overflows else loss), ()

    def take(self) -> list[float]:
        """Take a step; return the weights after it."""
        self.step.run([torch.ones(2, 3)], 1, self.loss)
        weights: list[float] = self.model.weight[0].tolist()
        return weights


def pending_residual() -> dict[str, Tensor]:
    return {"weight": torch.full((1, 3), 5.0)}


def test_pending_residual_is_added_once() -> None:
    job = WithResidual(Precision.FP32)
    job.strategy.add_pending_residual(pending_residual())
    assert job.take() == [-6.0] * 3
    assert job.take() == [-7.0] * 3


def test_skipped_fp16_step_keeps_pending_residual() -> None:
    job = WithResidual(Precision.FP16)
    job.strategy.add_pending_residual(pending_residual())
    job.overflows = True
    assert job.take() == job.take() == [0.0] * 3
    job.overflows = False
    assert job.take() == [-6.0] * 3
    assert job.take() == [-7.0] * 3


def test_broken_step_keeps_pending_residual() -> None:
    job = WithResidual(Precision.FP32)
    job.strategy.add_pending_residual(pending_residual())
    job.breaks_off = True
    with pytest.raises(PeersGoneError):
        job.take()
    job.breaks_off = False
    job.strategy.clear_gradients()
    assert job.take() == [-6.0] * 3


def test_pending_residual_is_saved() -> None:
    first, second = WithResidual(Precision.FP32), WithResidual(Precision.FP32)
    first.strategy.add_pending_residual(pending_residual())
    CompressionState(second.strategy, None).take(CompressionState(first.strategy, None).snapshot())
    assert first.take() == second.take() == [-6.0] * 3
    # After it there is nothing to save, and to load that clears the pending residual.
    second.strategy.add_pending_residual(pending_residual())
    CompressionState(second.strategy, None).take(CompressionState(first.strategy, None).snapshot())
    assert second.take() == [-7.0] * 3
