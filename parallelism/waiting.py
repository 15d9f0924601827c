"""Collectives in the midst of a pass, where the rank has nothing to do until they are done.

Over Gloo FSDP2 begins a collective and waits for it in one call, and what DTensor has begun the
next operator needs. So nothing hides these, and all of their time is waiting. On a GPU it is
unknown: FSDP2's collectives run in streams of their own, and it does not report where the passes
wait for them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.strategy import Tools

_Collective = Callable[..., dist.Work | None]

_gather: _Collective = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: _Collective = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Waits:
    """Reports to a step's clock from when to when a rank has waited.

    Attributes:
        tools: those of the present step; None before the first.
    """

    def __init__(self) -> None:
        self.tools: Tools | None = None
        self._begun: Any = None

    def begin(self) -> None:
        if self.tools is not None:
            self._begun = self.tools.now()

    def end(self) -> None:
        """Count the time since `begin` as waiting; without one, nothing.

        FSDP2 calls the hook after a reduce-scatter in a group of one rank as well, which has none.
        """
        if self.tools is not None and self._begun is not None:
            self.tools.waited(self._begun, self.tools.now())
            self._begun = None

    def leaves(self, _: Tensor) -> None:
        """Call `begin`, as a hook of a gradient."""
        self.begin()

    def arrived(self, tensor: Tensor) -> None:
        """Wait for what DTensor has begun, and note the end; likewise."""
        _await(tensor)
        self.end()


def watch_shards(model: nn.Module, waits: Waits) -> None:
    """Measure what `fully_shard` exchanges within the passes, over Gloo."""
    # FSDP2 asks for classes of its own, which it does not export; it only calls them.
    gather: Any = _Gather(waits)
    scatter: Any = _Scatter(waits)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)
            module.set_custom_reduce_scatter(scatter)
            module.set_all_reduce_hook(scatter.averaged)


def watch_splits(
    model: nn.Module, declaration: Declaration, waits: Waits, *, sequence_parallel: bool
) -> None:
    """Measure the exchanges of ranks that compute a layer together, over Gloo.

    Args:
        model: as `tensor.divide` has left it, or some layers of it.
        sequence_parallel: of `tensor.divide`.
    """
    modules = dict(model.named_modules())
    inputs = {split.column for split in declaration.splits}
    outputs = {split.row for split in declaration.splits}
    sequences = declaration.sequences if sequence_parallel else None
    if sequences is not None:
        inputs = {*sequences.mixers, sequences.head}
        outputs.add(sequences.embedding)
    for name in inputs & modules.keys():
        _watch_input(modules[name], waits, gathers=sequences is not None)
    for name in outputs & modules.keys():
        _watch_output(modules[name], waits, gathers=sequences is not None)


class _Allocating:
    """The allocator of FSDP2's collectives."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Allocating):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        self._waits.begin()
        work = _gather(output_tensor, input_tensor, group=group, async_op=async_op)
        self._waits.end()
        return work


class _Scatter(_Allocating):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        self._waits.begin()
        return _scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)

    def averaged(self, _: Tensor) -> None:
        """Note the end of the reduce-scatter, and of any all-reduce between the groups."""
        self._waits.end()


def _watch_input(module: nn.Module, waits: Waits, *, gathers: bool) -> None:
    """Watch the conversion of a module's input, and of the gradient back.

    Args:
        gathers: the way forward is one of other ranks' too.
    """

    def before(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        if gathers:
            waits.begin()
        if x.requires_grad:
            # The gradient of this use alone: others of the same tensor are computed in between.
            x = x.view_as(x)
            x.register_hook(waits.arrived)
        return (x, *others)

    def after(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        if gathers:
            waits.arrived(x)
        if x.requires_grad:
            x.register_hook(waits.leaves)

    module.register_forward_pre_hook(before, prepend=True)
    module.register_forward_pre_hook(after)


def _watch_output(module: nn.Module, waits: Waits, *, gathers: bool) -> None:
    """Watch the conversion of a module's output, and of the gradient back.

    Args:
        gathers: the way back of its gradient is one of other ranks' too.
    """

    def before(_: nn.Module, __: Any, output: Tensor) -> None:
        if gathers and output.requires_grad:
            output.register_hook(waits.arrived)
        waits.begin()

    def after(_: nn.Module, __: Any, output: Tensor) -> None:
        waits.arrived(output)
        if gathers and output.requires_grad:
            output.register_hook(waits.leaves)

    module.register_forward_hook(before, prepend=True)
    module.register_forward_hook(after)


def _await(tensor: Tensor) -> None:
    """Wait for what DTensor has begun here; otherwise the next operator would."""
    with torch.no_grad():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if isinstance(local, AsyncCollectiveTensor):
        local.trigger_wait()
