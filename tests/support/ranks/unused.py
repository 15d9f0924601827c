"""Ranks that save as an older version: without state of parameters that have had no gradient."""

from pathlib import Path
from unittest import mock

from torch import Tensor
from torch.optim import Optimizer

from trainhall.parallelism.strategy import Strategy
from trainhall.training import rank
from trainhall.training.loop import train_state
from trainhall.training.optim.optimizers import named_state


def saves_as_before(path: Path) -> int:
    def without(optimizer: Optimizer, strategy: Strategy) -> dict[str, Tensor]:
        named = named_state(optimizer, strategy)
        return {name: tensor for name, tensor in named.items() if not name.startswith("spare.")}

    with mock.patch.object(train_state, "named_state", without):
        return rank.main()
