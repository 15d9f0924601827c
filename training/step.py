"""One optimizer step: the part of training that the loop and `Trainer` share."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainhall.parallelism import ddp
from trainhall.training.clock import Phase, StepClock
from trainhall.training.optim import gradient_norm, set_learning_rate
from trainhall.training.precision import MixedPrecision

Loss = Callable[[nn.Module, Any], tuple[Tensor, tuple[Tensor, ...]]]
"""The mean loss of a model over a batch, and the means of other measures."""


class OptimizerStep:
    """Forward and backward passes over micro-batches, then one step of the optimizer.

    Args:
        model: as it is called, that is spread over the ranks by `parallelism`.
        parameters: those that are trained.
        clock: told when each phase has ended.
        gradient_clip: largest global L2 norm of the gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: list[nn.Parameter],
        optimizer: Optimizer,
        precision: MixedPrecision,
        clock: StepClock,
        *,
        world_size: int,
        gradient_clip: float | None,
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._optimizer = optimizer
        self._precision = precision
        self._clock = clock
        self._world_size = world_size
        self._gradient_clip = gradient_clip

    def run(
        self, batches: Iterable[Any], rounds: int, loss_of: Loss, rate: float | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Take a step over `rounds` micro-batches of equal size, at a learning rate if given.

        Returns:
            The means of the loss and the other measures over this rank's batch, and the global L2
            norm of the gradient before it was clipped: scalars on the device.
        """
        means: list[Tensor] = []
        for round_, batch in enumerate(batches, start=1):
            last = round_ == rounds
            with nullcontext() if last else ddp.local_gradients(self._model):
                with self._precision.autocast():
                    loss, metrics = loss_of(self._model, batch)
                self._clock.mark(Phase.FORWARD)
                self._backward(loss / rounds if rounds > 1 else loss, synchronise=last)
            measured = [value.detach() for value in (loss, *metrics)]
            means = [a + b for a, b in zip(means, measured, strict=True)] if means else measured
        if rounds > 1:
            means = [value / rounds for value in means]

        if rate is not None:
            set_learning_rate(self._optimizer, rate)
        self._precision.unscale(self._optimizer)
        norm = gradient_norm(self._parameters, self._gradient_clip)
        self._precision.step(self._optimizer)
        for parameter in self._parameters:  # `zero_grad` without its profiler hooks: 10 µs a step
            parameter.grad = None
        self._clock.mark(Phase.OPTIMIZER)
        return means, norm

    def _backward(self, loss: Tensor, *, synchronise: bool) -> None:
        """Accumulate gradients and, if asked, average them over the ranks while they appear.

        The engine's callbacks run in the order they were queued: ours, queued when the backward
        pass begins, runs when the last gradient is there and before DDP's waits for the network.
        So what remains until `backward` returns is communication that nothing hid.
        """
        if not synchronise or self._world_size == 1:
            self._precision.scale(loss).backward()
            self._clock.mark(Phase.BACKWARD)
            return
        scaled = self._precision.scale(loss)
        scaled.register_hook(self._mark_when_gradients_are_there)
        scaled.backward()
        self._clock.mark(Phase.COMMUNICATION)

    def _mark_when_gradients_are_there(self, _: Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(
            lambda: self._clock.mark(Phase.BACKWARD)
        )
