"""Data parallelism: every rank holds the whole model and gradients are averaged over the ranks."""

import inspect
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation

from trainhall.distributed import breakable, process_group
from trainhall.distributed.exchange import ring_bytes
from trainhall.parallelism.data_parallel.same_model import check_same_parameters
from trainhall.parallelism.data_parallel.sending import Average, Hook, average_on
from trainhall.parallelism.degrees import Degrees
from trainhall.parallelism.strategy import (
    NoGradientError,
    Strategy,
    Tools,
    clip_gradients,
    share_weights,
)

# torch 2.13 warns of the old name of what every rank does on its own.
_NEW_NAME, _OLD_NAME = "forward_sync_buffers", "broadcast_buffers"
_KNOWN = inspect.signature(DistributedDataParallel).parameters
_LEAVE_BUFFERS: dict[str, Any] = {_NEW_NAME if _NEW_NAME in _KNOWN else _OLD_NAME: False}


class Replicas(Strategy):
    """A model that every rank holds whole."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, bucket_mb: float, timed: bool = True
    ) -> None:
        """Spread a plain model over the default process group, as `apply` does, if it is joined.

        Args:
            timed: something listens to `Tools.sent`.
        """
        joined = dist.is_initialized()
        self.degrees = Degrees(data=dist.get_world_size() if joined else 1)
        self.samples = self.stream = dist.get_rank() if joined else 0
        self.averages = self.degrees.world_size > 1
        self.reports_sending = self.averages and timed
        self.model = self.called = model
        self._average: Average | None = None
        if self.averages:
            self.called = self._spread(model, device, bucket_mb)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters = list(self.parameters.values())
        self._residual: dict[str, Tensor] = {}

    def _spread(self, model: nn.Module, device: torch.device, bucket_mb: float) -> nn.Module:
        timed = self.reports_sending and several_buckets(model, bucket_mb)
        if timed or device.type == "cpu":
            self._average = average_on(device, timed=timed)
        return apply(model, device=device, bucket_mb=bucket_mb, hook=self._average)

    def _backward_and_average(self, loss: Tensor, tools: Tools) -> None:
        if self._average is not None:
            self._average.tools = tools
        super()._backward_and_average(loss, tools)

    def local_gradients(self) -> AbstractContextManager[None]:
        if isinstance(self.called, DistributedDataParallel):
            context: AbstractContextManager[None] = self.called.no_sync()
            return context
        return nullcontext()

    def average_gradients(self) -> None:
        """Check that the gradients were averaged.

        Raises:
            NoGradientError: the last micro-batch left a parameter out. DDP has averaged nothing
                then, or not all, and would report it in the next forward pass, a step too late.
        """
        if self._average is not None:
            self._average.check()
        self._check_average()

    def _check_average(self) -> None:
        if not isinstance(self.called, DistributedDataParallel):
            return
        # No public API shows it: after several micro-batches no gradient is None, and hooks on
        # parameters would cost each step more than this one call, which waits for no device.
        try:
            self.called._check_reducer_finalized()
        except RuntimeError as error:
            raise NoGradientError(
                f"{self._left_out(str(error))} got no gradient in a step's last micro-batch: the "
                "loss of this rank does not depend on it there, so nothing was averaged over the "
                "ranks. Use every trained parameter in every micro-batch (add 0 * its sum to the "
                "loss, say), or set requires_grad to False on what is not trained"
            ) from error

    def _left_out(self, message: str) -> str:
        """Return the parameters in a message of DDP, by their positions in `parameters`."""
        found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", message)
        names = list(self.parameters)
        return ", ".join(names[int(i)] for i in found[1].split()) if found else "a parameter"

    def add_pending_residual(self, gradients: Mapping[str, Tensor]) -> bool:
        self._residual = dict(gradients)
        return True

    def pending_residual(self) -> dict[str, Tensor]:
        return dict(self._residual)

    def clear_pending_residual(self) -> None:
        self._residual = {}

    @property
    def sent_bytes(self) -> int | None:
        size = sum(p.numel() * p.element_size() for p in self._parameters)
        return ring_bytes(size, self.degrees.world_size) if self.averages else None

    def _add_residual_to_gradients(self) -> None:
        """Add the pending residual to this step's gradients; it stays pending if the step is
        skipped or fails."""
        for name, gradient in self._residual.items():
            parameter = self.parameters[name]
            if parameter.grad is None:
                parameter.grad = gradient.to(parameter, copy=True)
            else:
                parameter.grad.add_(gradient.to(parameter))

    def clip(self, largest: float | None) -> Tensor:
        self._add_residual_to_gradients()
        # One tensor at a time: how DDP lays gradients out depends on the world size.
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        clip_gradients(self._parameters, largest, norm)
        return norm

    def accumulating(self) -> dict[str, nn.Parameter]:
        return self.parameters

    def share_buffers(self) -> None:
        # DDP does so before each forward pass, so after the last one they differ between ranks:
        # what is evaluated then is neither the same model everywhere nor the one that is saved.
        if self.averages:
            breakable.broadcast(list(self.model.buffers()), 0)


def apply(
    model: nn.Module,
    *,
    device: torch.device,
    bucket_mb: float,
    hook: Hook | None,
    buffers: bool = True,
) -> nn.Module:
    """Spread a plain model over the default process group; a group of one needs nothing.

    In host memory DDP takes this rank to be alone, and lays gradients out in buckets. Its waits
    cannot be interrupted, as a rank must that continues without another (see `breakable`); so
    everything that involves other ranks is done here and by the hook.

    Args:
        model: on `device` already; rank 0's weights win.
        bucket_mb: MiB of gradients that are averaged in one collective, while the backward pass
            still computes the next ones (Li et al., arXiv:2006.15704).
        hook: combines each bucket over the ranks. None: DDP itself averages them, on a GPU.
        buffers: rank 0's are given to all before each forward pass.

    Raises:
        ModelMismatchError: parameters have other shapes on other ranks.
    """
    if dist.get_world_size() == 1:
        return model
    check_same_parameters(model)
    on_host = device.type == "cpu"
    if on_host:
        share_weights(model)
    wrapped = DistributedDataParallel(
        model,
        device_ids=None if on_host else [device],
        process_group=process_group.alone() if on_host else None,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,
        **({} if buffers else _LEAVE_BUFFERS),
    )
    if on_host:
        before = _BufferCommHookLocation.PRE_FORWARD
        wrapped._register_buffer_comm_hook(None, _share_before_forward, before)
    _settle_buckets(wrapped)
    if hook is not None:
        wrapped.register_comm_hook(None, hook.combine)
    return wrapped


def _share_before_forward(_: None, buffers: Mapping[str, Tensor]) -> None:
    breakable.broadcast(list(buffers.values()), 0)


def several_buckets(model: nn.Module, bucket_mb: float) -> bool:
    """Return whether some gradients may be averaged before the last one is ready."""
    trained = [p for p in model.parameters() if p.requires_grad]
    size = sum(p.numel() * p.element_size() for p in trained)
    return size > bucket_mb * 2**20 or len({p.dtype for p in trained}) > 1


def _settle_buckets(wrapped: DistributedDataParallel) -> None:
    """Make DDP lay out its buckets now, once and for all.

    It does so again after a process's first backward pass, in the order in which gradients came.
    A ring adds an element's values in an order that depends on its place in the bucket, so with
    more than two ranks the first step after a resume would round differently from the same step of
    an uninterrupted job. A pass over the bare parameters, with gradients of zero, makes the choice
    without running the model: nothing is drawn at random and no buffer changes.
    """
    module = wrapped.module
    wrapped.module = _Bare([p for p in module.parameters() if p.requires_grad])
    wrapped.require_forward_param_sync = False  # it has no buffers; DDP sets it again
    try:
        # With none, DDP on a GPU looks for the inputs that it moved there and finds no first one.
        wrapped(torch.empty(0)).backward()
    finally:
        wrapped.module = module
    wrapped.zero_grad(set_to_none=True)


class _Bare(nn.Module):
    """Stands in for a model, whose own `forward` and hooks may be anything."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self._all = parameters

    def forward(self, _: Tensor) -> Tensor | int:
        return sum((p * 0).sum() for p in self._all)
