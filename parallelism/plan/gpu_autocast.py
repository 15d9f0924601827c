"""Autocast as it is on a GPU, for traces: their tensors are the CPU's, where it has other rules."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.library import _scoped_library, fallthrough_kernel

_HALF = (torch.bfloat16, torch.float16)


@contextmanager
def autocast_as_on_a_gpu() -> Iterator[None]:
    """Let a softmax read half precision and write float32, within.

    The CPU's rules convert what it reads first; of a language model's logits, a copy in float32 is
    a large part of all that a step holds.
    """
    with _scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that these replace its own
        for name, widening, plain in (
            ("log_softmax.int", torch._log_softmax, torch.log_softmax),
            ("softmax.int", torch._softmax, torch.softmax),
        ):
            kernel = _kernel(widening, plain)
            library.impl(name, kernel, "AutocastCPU", allow_override=True)
        # A GPU has no rule for it, but for what it is made of.
        library.impl("cross_entropy_loss", fallthrough_kernel, "AutocastCPU", allow_override=True)
        yield


def _kernel(
    widening: Callable[[Tensor, int, bool], Tensor], plain: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            if x.dtype in _HALF and dtype in (None, torch.float32):
                return widening(x, dim, True)
            return plain(x, dim, dtype=dtype)

    return softmax
