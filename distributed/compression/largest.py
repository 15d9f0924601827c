"""Finding the largest numbers of a gradient, in a few passes over it."""

import torch
from torch import Tensor

SAMPLE = 128
"""One number in so many is sampled first."""
_MARGIN = 1.3
_FEW = 1 << 14
"""Not worth a sample."""


def largest(numbers: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` numbers of the largest magnitude, in no particular order.

    NaN counts as larger than everything. The choice is a function of the numbers alone.

    `topk` over millions of numbers takes ten times as long as this: a sample gives a bound that
    somewhat more than `count` numbers reach (as in Lin et al., "Deep Gradient Compression",
    arXiv:1712.01887), and the exact choice is made among those. Where the sample was misleading
    and fewer reach it, all numbers are searched.

    Args:
        numbers: flat.
        count: from 1 to all of them.
    """
    total = len(numbers)
    if count == total:
        return torch.arange(total, device=numbers.device)
    sizes = numbers.abs()
    wanted = int(_MARGIN * count / SAMPLE) + 2
    if total > _FEW and wanted < total // SAMPLE:
        bound = sizes[::SAMPLE].topk(wanted, sorted=False).values.min()
        candidates = (sizes < bound).logical_not_().nonzero().squeeze(1)  # a NaN is not below
        if len(candidates) >= count:
            chosen = sizes[candidates].topk(count, sorted=False).indices
            return candidates[chosen]
    return sizes.topk(count, sorted=False).indices
