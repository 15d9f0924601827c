"""A broken step leaves no trace."""

from contextlib import suppress
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.interface import Bucket
from trainhall.parallelism.strategy import Strategy
from trainhall.training.common.sample_order import Sampler
from trainhall.training.elastic.step_rollback import StepRollback

GRADIENT = torch.tensor([[4.0, 3.0], [2.0, 1.0]])


class PeerGoneError(Exception):
    pass


class Alone:
    """An exchange of one rank."""

    rank = 0
    world_size = 1

    def sum(self, tensor: Tensor) -> None:
        pass

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(0)


class Compressed:
    """The part of a strategy that is taken back."""

    def __init__(self, compression: str) -> None:
        self.model = nn.BatchNorm1d(2)
        self._compression = choose(compression, 0.25)
        self.sync_state = self._compression.state_dict
        self.load_sync_state = self._compression.load_state_dict

    def clear_gradients(self) -> None:
        pass

    def passes(self) -> Tensor:
        """What a step sends of the gradient; its running statistics change too."""
        self.model(torch.ones(4, 2))
        flat = GRADIENT.flatten().clone()
        self._compression.combine(Bucket(0, flat, (flat.view(2, 2),), ("weight",)), Alone())
        return flat


@pytest.mark.parametrize("whole_steps", [0, 1, 3])
@pytest.mark.parametrize("compression", ["topk", "powersgd"])
def test_rollback_counts_compression_residual_once(compression: str, whole_steps: int) -> None:
    strategy, undisturbed = Compressed(compression), Compressed(compression)
    sampler = Sampler(8, 4, 0)
    rollback = StepRollback(cast(Strategy, strategy), sampler)
    for _ in range(whole_steps):
        undisturbed.passes()
        with rollback.step():
            strategy.passes()
    mean, position = strategy.model.running_mean, sampler.state()
    assert mean is not None
    before = mean.clone()
    with suppress(PeerGoneError), rollback.step():
        sampler.next_batch(0, 1, 1)
        strategy.passes()
        raise PeerGoneError
    assert not torch.equal(mean, before)
    rollback.roll_back()
    assert torch.equal(mean, before)
    assert sampler.state() == position
    assert strategy.sync_state().keys() == undisturbed.sync_state().keys()
    assert torch.equal(strategy.passes(), undisturbed.passes())


def test_completed_step_is_not_rolled_back() -> None:
    strategy = Compressed("topk")
    rollback = StepRollback(cast(Strategy, strategy), Sampler(8, 4, 0))
    with rollback.step():
        strategy.passes()
    kept = {name: tensor.clone() for name, tensor in strategy.sync_state().items()}
    rollback.roll_back()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in strategy.sync_state().items())
    assert torch.equal(kept["residual/weight"], torch.tensor([[0.0, 3.0], [2.0, 1.0]]))
