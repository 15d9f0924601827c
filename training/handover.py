"""State from one rank to those that lack it, over the group; no file is read."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from trainhall.training.optim import allocate_state


def share_tensors(model: nn.Module, optimizer: Optimizer, source: int) -> None:
    """Give every rank the source's weights, buffers and optimizer state. A collective.

    Args:
        model: a plain one, which all ranks hold whole.
    """
    if not optimizer.state:
        allocate_state(optimizer)
    for tensor in [*model.parameters(), *model.buffers(), *_state_of(optimizer)]:
        dist.broadcast(tensor.detach(), src=source)


def share_object(value: Any, source: int, group: dist.ProcessGroup) -> Any:
    """Give every rank the source's plain value. A collective."""
    box = [value]
    dist.broadcast_object_list(box, src=source, group=group)
    return box[0]


def _state_of(optimizer: Optimizer) -> list[Tensor]:
    """Its tensors, on all ranks in the same order."""
    found: list[Tensor] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            found += [state[k] for k in sorted(state) if isinstance(state[k], Tensor)]
    return found
