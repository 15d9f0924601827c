"""State from one rank to those that lack it, over the group; no file is read."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.optim import Optimizer

from trainhall.distributed import breakable


def share_tensors(
    model: nn.Module, optimizer: Optimizer, source: int, moved: Callable[[], None]
) -> None:
    """Give every rank the source's weights, buffers and optimizer state. A collective.

    Args:
        model: a plain one, which all ranks hold whole.
        moved: called after each tensor.
    """
    tensors = [*model.parameters(), *model.buffers(), *_state_of(optimizer)]
    breakable.broadcast(tensors, source, moved)


def _state_of(optimizer: Optimizer) -> list[Tensor]:
    """Return its tensors, on all ranks in the same order."""
    found: list[Tensor] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            found += [state[k] for k in sorted(state) if isinstance(state[k], Tensor)]
    return found
