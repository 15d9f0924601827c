"""Takes back what a step that broke off has changed beside the gradients."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from trainhall.parallelism.strategy import Strategy
from trainhall.training.common.sample_order import Sampler


class StepRollback:
    """Remembers what passes change before the optimizer does: buffers, such as batch norm's running
    statistics, what a compression has not sent, and where the sampler stands. The optimizer's step
    itself involves no other rank and so is taken whole or not at all.
    """

    def __init__(self, strategy: Strategy, sampler: Sampler) -> None:
        self._strategy = strategy
        self._sampler = sampler
        self._buffers = list(strategy.model.buffers())
        self._copies = [torch.empty_like(buffer) for buffer in self._buffers]
        self._unsent: dict[str, Tensor] = {}
        self._position = sampler.state()
        self._is_open = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """Guard a step; an exception leaves it to be taken back."""
        self._position = self._sampler.state()
        if self._copies:
            torch._foreach_copy_(self._copies, self._buffers)
        # Before its first step a compression keeps nothing, and that is to be gone back to as well.
        unsent = self._strategy.sync_state()
        self._unsent = {name: tensor.clone() for name, tensor in unsent.items()}
        self._is_open = True
        yield
        self._is_open = False

    def roll_back(self) -> None:
        """Undo the broken step, if there is one, as if never begun."""
        if not self._is_open:
            return
        self._is_open = False
        self._sampler.restore(self._position)
        if self._copies:
            torch._foreach_copy_(self._buffers, self._copies)
        self._strategy.load_sync_state(self._unsent)
        self._strategy.clear_gradients()
