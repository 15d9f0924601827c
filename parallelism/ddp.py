"""Data parallelism: every rank holds the whole model and gradients are averaged over the ranks."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainhall.parallelism.buckets import Buckets
from trainhall.parallelism.degrees import Degrees
from trainhall.parallelism.same_model import check_same_parameters
from trainhall.parallelism.sending import TimedAverage
from trainhall.parallelism.strategy import Strategy, Tools, clip_gradients


class Replicas(Strategy):
    """A model that every rank holds whole."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, bucket_mb: float, timed: bool = True
    ) -> None:
        """Spread a plain model over the default process group, as `apply` does, if it is joined.

        Args:
            timed: somebody listens to `Tools.sent`.
        """
        joined = dist.is_initialized()
        self.degrees = Degrees(data=dist.get_world_size() if joined else 1)
        self.samples = self.stream = dist.get_rank() if joined else 0
        self.averages = self.degrees.world_size > 1
        self.tells_sending = self.averages and timed
        self.model = self.called = model
        self._timed: TimedAverage | None = None
        if self.averages:
            self.called = self._spread(model, device, bucket_mb)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters = list(self.parameters.values())
        self._buckets = Buckets()
        self._owed: dict[str, Tensor] = {}

    def _spread(self, model: nn.Module, device: torch.device, bucket_mb: float) -> nn.Module:
        spread = apply(model, device=device, bucket_mb=bucket_mb)
        assert isinstance(spread, DistributedDataParallel)
        if self.tells_sending and several_buckets(model, bucket_mb):
            self._timed = TimedAverage(spread)
        return spread

    def _backward_and_average(self, loss: Tensor, tools: Tools) -> None:
        if self._timed is not None:
            self._timed.tools = tools
        super()._backward_and_average(loss, tools)

    def local_gradients(self) -> AbstractContextManager[None]:
        return local_gradients(self.called)

    def average_gradients(self) -> None:
        if self._timed is not None:
            self._timed.check()

    def owe(self, gradients: Mapping[str, Tensor]) -> bool:
        self._owed = dict(gradients)
        return True

    def _pay(self) -> None:
        """Add to this step's gradients what is owed to them."""
        for name, gradient in self._owed.items():
            parameter = self.parameters[name]
            owed = gradient.to(parameter)
            parameter.grad = owed if parameter.grad is None else parameter.grad.add_(owed)
        self._owed = {}

    def clip(self, largest: float | None) -> Tensor:
        self._pay()
        norm = self._buckets.norm([p.grad for p in self._parameters if p.grad is not None])
        clip_gradients(self._parameters, largest, norm)
        return norm

    def clear_gradients(self) -> None:
        for parameter in self._parameters:  # `zero_grad` without its profiler hooks: 10 µs a step
            parameter.grad = None

    def share_buffers(self) -> None:
        share_buffers(self.called)


def apply(model: nn.Module, *, device: torch.device, bucket_mb: float) -> nn.Module:
    """Spread a plain model over the default process group; a group of one needs nothing.

    Args:
        model: on `device` already; rank 0's weights win.
        bucket_mb: MiB of gradients that are averaged in one collective, while the backward pass
            still computes the next ones (Li et al., arXiv:2006.15704).

    Raises:
        DifferentModels: parameters have other shapes on other ranks.
    """
    if dist.get_world_size() == 1:
        return model
    check_same_parameters(model)
    wrapped = DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,
    )
    _settle_buckets(wrapped)
    return wrapped


def several_buckets(model: nn.Module, bucket_mb: float) -> bool:
    """Whether some gradients may be averaged before the last one is there."""
    trained = [p for p in model.parameters() if p.requires_grad]
    size = sum(p.numel() * p.element_size() for p in trained)
    return size > bucket_mb * 2**20 or len({p.dtype for p in trained}) > 1


def _settle_buckets(wrapped: DistributedDataParallel) -> None:
    """Have DDP lay out its buckets now, once and for all.

    It does so anew after a process's first backward pass, in the order in which gradients came.
    A ring adds an element's values in an order that depends on its place in the bucket, so with
    more than two ranks the first step after a resume would round differently from the same step of
    an uninterrupted job. With any number, `Buckets` would hold the old ones until the end of that
    step: all gradients twice. A pass over the bare parameters, with gradients of zero, makes the
    choice without running the model: nothing is drawn at random and no buffer changes.
    """
    module = wrapped.module
    wrapped.module = _Bare([p for p in module.parameters() if p.requires_grad])
    wrapped.require_forward_param_sync = False  # it has no buffers; DDP sets it again
    try:
        wrapped().backward()
    finally:
        wrapped.module = module
    wrapped.zero_grad(set_to_none=True)


class _Bare(nn.Module):
    """Stands in for a model, whose own `forward` and hooks may be anything."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self._all = parameters

    def forward(self) -> Tensor | int:
        return sum((p * 0).sum() for p in self._all)


def share_buffers(model: nn.Module) -> None:
    """Give every rank rank 0's buffers, such as the running statistics of batch norm. A collective.

    DDP does so before each forward pass, so after the last one they differ between ranks: what is
    evaluated then is neither the same model everywhere nor the one that is saved.
    """
    if isinstance(model, DistributedDataParallel):
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def local_gradients(model: nn.Module) -> AbstractContextManager[None]:
    """Within it backward passes only accumulate; the next one outside averages over the ranks."""
    if isinstance(model, DistributedDataParallel):
        context: AbstractContextManager[None] = model.no_sync()
        return context
    return nullcontext()
