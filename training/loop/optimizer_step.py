"""One optimizer step: the part of training that the loop and `Trainer` share."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainhall.parallelism.strategy import Loss, Strategy, Tools
from trainhall.training.common.step_clock import Phase, StepClock
from trainhall.training.gradients.capture import GradientWatch, watching
from trainhall.training.optim.optimizers import set_learning_rate
from trainhall.training.optim.precision import MixedPrecision


@dataclass
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

    strategy: Strategy
    optimizer: Optimizer
    precision: MixedPrecision
    clock: StepClock
    _: KW_ONLY
    gradient_clip: float | None
    measures: int = 0
    shard_begins: Callable[[int], None] = lambda _: None
    update_begins: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        clock = self.clock
        self._tools = Tools(
            autocast=self.precision.autocast,
            scale=self.precision.scale,
            forward_ended=partial(clock.mark, Phase.FORWARD),
            backward_ended=partial(clock.mark, Phase.BACKWARD),
            communication_ended=partial(clock.mark, Phase.COMMUNICATION),
            measures=self.measures,
            now=clock.now,
            sent=clock.sent,
            sending_unmeasured=clock.sending_unmeasured,
            waited=clock.waited,
            compressed=clock.compressed,
            shard_begins=self.shard_begins,
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
        scale = self.precision.loss_scale
        with nullcontext() if watch is None else watching(self.strategy, watch, scale):
            means = self.strategy.gradients(batches, loss_of, self._tools, rounds=rounds)
        if rate is not None:
            set_learning_rate(self.optimizer, rate)
        self.precision.unscale(self.optimizer)
        if watch is not None:
            watch.averaged(self.strategy)
        norm = self.strategy.clip(self.gradient_clip)
        self.update_begins()
        if not self.strategy.pending_residual():
            self.precision.step(self.optimizer)
        elif self.precision.take(self.optimizer):  # for which the host waits, and so seldom
            self.strategy.clear_pending_residual()
        self.strategy.clear_gradients()
        self.clock.mark(Phase.OPTIMIZER)
        self.strategy.finish_step(self._tools)
        return means, norm
