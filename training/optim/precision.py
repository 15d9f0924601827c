"""Numeric precision of the forward and backward pass; weights stay in float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from trainhall.training.spec import Precision

_DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def low_precision(precision: Precision) -> torch.dtype | None:
    """Return the type that autocast computes in; None: float32, as without it."""
    return _DTYPES.get(precision)


_TOLERATED = 20
"""A loss scale that was halved so many times is useless."""


def tolerated_steps(precision: Precision) -> int:
    """Return how many steps in a row may have a loss that is NaN: with fp16 they are skipped."""
    return _TOLERATED if precision is Precision.FP16 else 0


class MixedPrecision:
    """Autocast, and for fp16 the loss scaling that keeps small gradients above zero.

    Follows Micikevicius et al., "Mixed Precision Training" (arXiv:1710.03740). With fp32 and bf16
    every method is the plain operation. All ranks skip the same fp16 steps: they see an overflow in
    the averaged gradient, or, where each has a part of it, exchange it.

    Args:
        replicated: every rank has the whole gradient.
    """

    def __init__(
        self, precision: Precision, device: torch.device, *, replicated: bool = True
    ) -> None:
        self._device_type = device.type
        self._dtype = _DTYPES.get(precision)
        kind = GradScaler if replicated else _AgreedScaler
        self._scaler = kind(device.type) if precision is Precision.FP16 else None

    def autocast(self) -> AbstractContextManager[Any]:
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def scale(self, loss: Tensor) -> Tensor:
        return loss if self._scaler is None else self._scaler.scale(loss)

    def loss_scale(self) -> Tensor | None:
        """Return the loss scale: a scalar on the device; None for 1."""
        return None if self._scaler is None else self._scaler._scale

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring gradients back to their true size; once a step, before they are clipped."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Take one optimizer step; with fp16 skip it when a gradient overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def take(self, optimizer: Optimizer) -> bool:
        """Take a step as `step`; return whether it was taken. With fp16 the host waits for that."""
        if self._scaler is None:
            optimizer.step()
            return True
        before = self._scaler.get_scale()
        self.step(optimizer)
        # It falls if a step is left out, and then alone.
        return self._scaler.get_scale() >= before

    def state(self) -> dict[str, Any]:
        return {} if self._scaler is None else dict(self._scaler.state_dict())

    def restore(self, state: dict[str, Any]) -> None:
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


class _AgreedScaler(GradScaler):
    """For ranks that each have a part of the gradient: an overflow on one is one on all.

    Torch's `ShardedGradScaler` adds the ranks' findings up; fused optimizers skip a step at exactly
    1, so they would take one whose gradient has overflowed on two ranks.
    """

    def unscale_(self, optimizer: Optimizer) -> None:
        super().unscale_(optimizer)
        findings: dict[Any, Tensor] = self._found_inf_per_device(optimizer)
        if not findings:  # a rank without parameters
            assert self._scale is not None
            findings[self._scale.device] = torch.zeros_like(self._scale)
        for found in findings.values():
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
