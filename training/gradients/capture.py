"""Gradient capture: each parameter's gradient, right after a step has accumulated it.

A `GradientWatch` sees one step. Nothing is hooked into a step that is not watched, so that capture
costs nothing while it is off.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainhall.parallelism.strategy import Strategy
from trainhall.training.link.gradient_record import HISTOGRAM_BINS, LOWEST_EXPONENT, Histogram


@dataclass(frozen=True)
class Gradient:
    """This rank's accumulated gradient of one parameter.

    Under `ddp` and `parameter_server`, and between the copies of a pipeline, it is not averaged
    over the ranks yet; under `fsdp` it is this rank's part of the average.
    """

    name: str
    """The parameter's in the plain model."""
    step: int
    """The optimizer step, from 1."""
    tensor: Tensor
    """A plain tensor, times the loss scale under fp16. Only while `accumulated` runs: afterwards
    its memory may hold the average already."""
    scale: Tensor | None = None
    """The loss scale; None for 1."""

    @property
    def norm(self) -> Tensor:
        """Its L2 norm: a scalar on the device, which nothing waits for."""
        norm: Tensor = torch.linalg.vector_norm(self.tensor)
        return norm if self.scale is None else norm / self.scale

    def histogram(self) -> Histogram:
        """Return a histogram of magnitudes; the host waits for the device."""
        scaled = self.tensor if self.scale is None else self.tensor / self.scale
        return histogram_of(magnitudes(scaled).tolist())


class GradientWatch:
    """Sees the gradients of one step; does nothing by itself."""

    def __init__(self, step: int) -> None:
        self.step = step

    def accumulated(self, gradient: Gradient) -> None:
        """Note that a gradient was added to: at each micro-batch, the last time of a step with all
        of them.

        Parameters come in the order in which the backward pass reaches them.
        """

    def averaged(self, strategy: Strategy) -> None:
        """Note that the gradients of `strategy.parameters` are the mean over the ranks, not yet
        clipped.

        All ranks get here, so that it may begin collectives.
        """


@contextmanager
def watching(
    strategy: Strategy, watch: GradientWatch, scale: Callable[[], Tensor | None]
) -> Iterator[None]:
    """Show `watch` every gradient that this rank accumulates within it.

    Args:
        scale: the present loss scale.
    """

    def notify(name: str, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        assert gradient is not None
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        watch.accumulated(Gradient(name, watch.step, local.detach(), scale()))

    parameters = strategy.accumulating()
    handles = [
        parameter.register_post_accumulate_grad_hook(partial(notify, name))
        for name, parameter in parameters.items()
    ]
    names = {parameter: name for name, parameter in parameters.items()}
    strategy.accumulated = lambda parameter: notify(names[parameter], parameter)
    try:
        yield
    finally:
        strategy.accumulated = None
        for handle in handles:
            handle.remove()


def magnitudes(tensor: Tensor) -> Tensor:
    """Count the numbers of a tensor that fall into each bin of a `Histogram`, then zeros, not
    finite.

    int64 [`HISTOGRAM_BINS` + 2]; such counts of a tensor's parts add up to those of the whole.
    """
    flat = tensor.detach().reshape(-1)
    if flat.itemsize < 4:
        flat = flat.float()
    _, exponents = torch.frexp(flat)
    bins = (exponents.long() - 1 - LOWEST_EXPONENT).clamp_(0, HISTOGRAM_BINS - 1)
    bins[flat == 0] = HISTOGRAM_BINS
    bins[~flat.isfinite()] = HISTOGRAM_BINS + 1
    return torch.bincount(bins, minlength=HISTOGRAM_BINS + 2)


def histogram_of(counts: list[int]) -> Histogram:
    """Convert the counts of `magnitudes`."""
    *bins, zeros, not_finite = counts
    full = [i for i, count in enumerate(bins) if count]
    first, end = (full[0], full[-1] + 1) if full else (0, 0)
    return Histogram(first=first, counts=bins[first:end], zeros=zeros, not_finite=not_finite)
