"""A rank's parts of a sharded model, as plain tensors.

The optimizer, loss scaling and clipping act on them, not on DTensors: on shards an elementwise
update is the same, fused kernels take lists of plain tensors only, and no call is dispatched.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.strategy import Loss, NoGradientError, Strategy, Tools, clip_gradients
from trainhall.parallelism.waiting import Waits, watch_shards, watch_splits


class Part:
    """This rank's part of one trained parameter.

    Args:
        holders: number of ranks that have the parameter, whole or in part.
    """

    def __init__(self, parameter: nn.Parameter, holders: int) -> None:
        self.of = parameter
        self.copies = holders
        """Ranks that hold the same elements."""
        local = parameter.detach()
        if isinstance(local, DTensor):
            sizes = zip(local.placements, local.device_mesh.shape, strict=True)
            # A part of a part is a placement of another class than a part, but neither is a copy.
            self.copies //= prod(size for placement, size in sizes if not placement.is_replicate())
            local = local.to_local()
        self.memory = nn.Parameter(local)
        """Shares its memory with the model's parameter."""

    def take_gradient(self) -> None:
        """Hand the model's gradient over to `memory`."""
        gradient = self.of.grad
        if isinstance(gradient, DTensor) and isinstance(self.of, DTensor):
            if gradient.placements != self.of.placements:
                gradient = gradient.redistribute(placements=self.of.placements)
            gradient = gradient.to_local()
        self.memory.grad = gradient

    def clear(self) -> None:
        self.of.grad = self.memory.grad = None

    def like_parameter(self, state: Tensor) -> Tensor:
        """Return a tensor for `memory`, element by element, as the same part of a whole one."""
        of = self.of
        if not isinstance(of, DTensor) or state.shape != self.memory.shape:
            return state
        return DTensor.from_local(
            state, of.device_mesh, of.placements,
            run_check=False, shape=of.shape, stride=of.stride(),
        )  # fmt: skip


def clip_parts(parts: list[Part], largest: float | None, waits: Waits, zero: Tensor) -> Tensor:
    """Clip as `Strategy.clip`, over all ranks: each element counts once.

    A rank adds the squares of its own parts, each divided by the number of ranks that hold the
    same; one scalar is exchanged.

    Args:
        zero: what a rank adds that trains nothing, as a scalar like those of the others.
    """
    parameters = [part.memory for part in parts]
    gradients = [memory.grad for memory in parameters if memory.grad is not None]
    copies = [part.copies for part in parts if part.memory.grad is not None]
    total = zero.clone()
    if gradients:
        norms = torch._foreach_norm(gradients)
        shares = [norm.square() / number for norm, number in zip(norms, copies, strict=True)]
        total = torch.stack(shares).sum()
    waits.begin()
    dist.all_reduce(total)
    waits.end()
    norm: Tensor = total.sqrt()
    clip_gradients(parameters, largest, norm)
    return norm


def zero_like(model: nn.Module) -> Tensor:
    """Return zero, on the device and in the precision of a model's weights."""
    weights = next(model.parameters())
    return torch.zeros((), dtype=weights.dtype, device=weights.device)


class Divided(Strategy):
    """Base of strategies whose ranks hold parts of the model.

    Attributes:
        waits: what the rank waits for within the passes and in clipping.
        zero: the squared norm of a rank without gradients, as all of a stage may be frozen.
    """

    replicated = False
    waits: Waits
    zero: Tensor

    def __init__(self, model: nn.Module, mesh: Mesh) -> None:
        """Train a model that is spread over the mesh already."""
        self.waits = Waits()
        self.degrees = mesh.degrees
        self.samples = self.stream = mesh.samples
        self.model = self.called = model
        self.zero = zero_like(model)
        self._parts = {
            name: Part(parameter, holders=mesh.degrees.world_size)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        self.parameters = {name: part.memory for name, part in self._parts.items()}

    def measure_waits(self, declaration: Declaration, *, sequence_parallel: bool) -> None:
        """Report to `waits` what is exchanged within the passes, over Gloo: nothing hides it."""
        watch_shards(self.model, self.waits)
        if self.degrees.tensor > 1:
            watch_splits(self.model, declaration, self.waits, sequence_parallel=sequence_parallel)
        self.reports_sending |= self.degrees.pipeline == 1

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        self.waits.tools = tools
        return super().backward(batch, loss_of, tools, rounds=rounds, last=last)

    def average_gradients(self) -> None:
        """Average the gradients.

        Raises:
            NoGradientError: this rank left a parameter out of a step, and the others wait for it
                until this rank has ended.
        """
        if self.degrees.samples > 1:
            self._check_gradients()
        for part in self._parts.values():
            part.take_gradient()

    def _check_gradients(self) -> None:
        absent = [name for name, part in self._parts.items() if part.of.grad is None]
        if absent:
            raise no_gradient(absent)

    def clip(self, largest: float | None) -> Tensor:
        return clip_parts(list(self._parts.values()), largest, self.waits, self.zero)

    def clear_gradients(self) -> None:
        for part in self._parts.values():
            part.clear()

    def share_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)

    def accumulating(self) -> dict[str, nn.Parameter]:
        # Weights that several layers share have one name, which need not be of a layer here.
        return {name: part.of for name, part in self._parts.items()}

    def copies(self, name: str) -> int:
        return self._parts[name].copies

    def like_parameter(self, name: str, state: Tensor) -> Tensor:
        return self._parts[name].like_parameter(state)


def no_gradient(names: Sequence[str]) -> NoGradientError:
    """Return the error about parameters that a rank has left out."""
    return NoGradientError(
        f"{', '.join(names)} got no gradient in a step: the loss of this rank does not depend "
        "on it there, so nothing can be averaged over the ranks. Use every trained parameter "
        "in every micro-batch (for example, multiply its output by 0), or set requires_grad "
        "to False on what is not trained"
    )


def average(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Replace tensors by their mean over a group's ranks, in one collective for each dtype."""
    by_dtype: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_dtype[tensor.dtype].append(tensor)
    for same in by_dtype.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        dist.all_reduce(flat, group=group)
        flat /= dist.get_world_size(group)
        parts = flat.split([tensor.numel() for tensor in same])
        torch._foreach_copy_(same, [p.view_as(t) for p, t in zip(parts, same, strict=True)])


def gathered(
    parts: Iterable[tuple[str, Tensor]], group: dist.ProcessGroup, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    """Yield named tensors, split over a group's ranks, one by one, whole on all of them."""
    mine, own_rank = dict(parts), dist.get_rank(group)
    all_forms: list[Any] = [None] * dist.get_world_size(group)
    forms = {name: (t.shape, t.dtype, t.device.type) for name, t in mine.items()}
    dist.all_gather_object(all_forms, forms, group=group)
    for name in sorted(set().union(*all_forms)):
        source = next(rank for rank, forms in enumerate(all_forms) if name in forms)
        shape, dtype, kind = all_forms[source][name]
        tensor = mine.get(name)
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        if tensor is None or own_rank != source:
            # A step count of the optimizer may lie in host memory beside weights on a GPU.
            where = torch.device("cpu") if kind == "cpu" else device
            tensor = torch.empty(shape, dtype=dtype, device=where)
        tensor = tensor.detach().contiguous()
        dist.broadcast(tensor, group_src=source, group=group)
        yield name, tensor
