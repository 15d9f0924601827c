"""One optimizer step: the part of training that the loop and `Trainer` share."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainhall.parallelism.strategy import Loss, Strategy, Tools
from trainhall.training.common.step_clock import Phase, StepClock
from trainhall.training.gradients.capture import GradientWatch, watching
from trainhall.training.optim.optimizers import set_learning_rate
from trainhall.training.optim.precision import MixedPrecision


class OptimizerStep:
    """Forward and backward passes over micro-batches, then one step of the optimizer.

    Args:
        strategy: how the model is spread over the ranks.
        optimizer: of the strategy's parameters.
        measures: how many other measures a loss comes with.
        clock: notified when each phase has ended.
        gradient_clip: largest global L2 norm of the gradient.
        shard_begins: called before the passes of each logical shard, where there are such.
        update_begins: called when the gradients are averaged and no weight has changed yet.
    """

    def __init__(
        self,
        strategy: Strategy,
        optimizer: Optimizer,
        precision: MixedPrecision,
        clock: StepClock,
        *,
        gradient_clip: float | None,
        measures: int = 0,
        shard_begins: Callable[[int], None] = lambda _: None,
        update_begins: Callable[[], None] = lambda: None,
    ) -> None:
        self._strategy = strategy
        self._optimizer = optimizer
        self._precision = precision
        self._clock = clock
        self._gradient_clip = gradient_clip
        self._update_begins = update_begins
        self._tools = Tools(
            autocast=precision.autocast,
            scale=precision.scale,
            forward_ended=partial(clock.mark, Phase.FORWARD),
            backward_ended=partial(clock.mark, Phase.BACKWARD),
            communication_ended=partial(clock.mark, Phase.COMMUNICATION),
            measures=measures,
            now=clock.now,
            sent=clock.sent,
            sending_unmeasured=clock.sending_unmeasured,
            waited=clock.waited,
            compressed=clock.compressed,
            shard_begins=shard_begins,
        )

    def run(
        self,
        batches: Iterable[Any],
        rounds: int,
        loss_of: Loss,
        rate: float | None = None,
        watch: GradientWatch | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Take a step over `rounds` micro-batches of equal size, at a learning rate if given.

        Args:
            watch: sees the step's gradients.

        Returns:
            The means of the loss and the other measures over this rank's batch, and the global L2
            norm of the gradient before it was clipped: scalars on the device.
        """
        scale = self._precision.loss_scale
        with nullcontext() if watch is None else watching(self._strategy, watch, scale):
            means = self._strategy.gradients(batches, loss_of, self._tools, rounds=rounds)
        if rate is not None:
            set_learning_rate(self._optimizer, rate)
        self._precision.unscale(self._optimizer)
        if watch is not None:
            watch.averaged(self._strategy)
        norm = self._strategy.clip(self._gradient_clip)
        self._update_begins()
        if not self._strategy.pending_residual():
            self._precision.step(self._optimizer)
        elif self._precision.take(self._optimizer):  # for which the host waits, and so seldom
            self._strategy.clear_pending_residual()
        self._strategy.clear_gradients()
        self._clock.mark(Phase.OPTIMIZER)
        self._strategy.finish_step(self._tools)
        return means, norm
