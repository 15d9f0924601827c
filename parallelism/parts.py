"""A rank's parts of a sharded model, as plain tensors.

The optimizer, loss scaling and clipping act on them, not on DTensors: on shards an elementwise
update is the same, fused kernels take lists of plain tensors only, and no call is dispatched.
"""

from math import prod

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainhall.parallelism.strategy import clip_gradients


class Part:
    """This rank's part of one trained parameter.

    Args:
        holders: how many ranks have the parameter, whole or in part.
    """

    def __init__(self, parameter: nn.Parameter, holders: int) -> None:
        self._of = parameter
        self.copies = holders
        """Ranks that hold the same elements."""
        local = parameter.detach()
        if isinstance(local, DTensor):
            sizes = zip(local.placements, local.device_mesh.shape, strict=True)
            self.copies //= prod(size for placement, size in sizes if placement.is_shard())
            local = local.to_local()
        self.memory = nn.Parameter(local)
        """Shares its memory with the model's parameter."""

    def take_gradient(self) -> None:
        """Hand the model's gradient over to `memory`."""
        gradient = self._of.grad
        if isinstance(gradient, DTensor) and isinstance(self._of, DTensor):
            if gradient.placements != self._of.placements:
                gradient = gradient.redistribute(placements=self._of.placements)
            gradient = gradient.to_local()
        self.memory.grad = gradient

    def clear(self) -> None:
        self._of.grad = self.memory.grad = None

    def like_parameter(self, state: Tensor) -> Tensor:
        """A tensor for `memory`, element by element, as the same part of a whole one."""
        of = self._of
        if not isinstance(of, DTensor) or state.shape != self.memory.shape:
            return state
        return DTensor.from_local(
            state, of.device_mesh, of.placements,
            run_check=False, shape=of.shape, stride=of.stride(),
        )  # fmt: skip


def clip_parts(parts: list[Part], largest: float | None) -> Tensor:
    """As `Strategy.clip`, over all ranks: each element of the whole gradient counts once.

    A rank adds the squares of its own parts, each divided by the number of ranks that hold the
    same; one scalar is exchanged.
    """
    parameters = [part.memory for part in parts]
    gradients = [memory.grad for memory in parameters if memory.grad is not None]
    copies = [part.copies for part in parts if part.memory.grad is not None]
    norms = torch._foreach_norm(gradients)
    shares = [norm.square() / number for norm, number in zip(norms, copies, strict=True)]
    total = torch.stack(shares).sum()
    dist.all_reduce(total)
    norm: Tensor = total.sqrt()
    clip_gradients(parameters, largest, norm)
    return norm
