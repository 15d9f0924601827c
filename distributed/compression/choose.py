"""The compression that a job asks for."""

import torch

from trainhall.distributed.compression.half import Half
from trainhall.distributed.compression.interface import Compression, Dense
from trainhall.distributed.compression.power_sgd import PowerSGD
from trainhall.distributed.compression.top_k import TopK


def choose(name: str, ratio: float) -> Compression:
    """Return a compression by its name in the spec.

    Args:
        ratio: of the numbers that are sent, in (0, 1]; for `topk` and `powersgd`.

    Raises:
        ValueError: there is none of this name, or the ratio is not allowed.
    """
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, not {ratio!r}")
    match name:
        case "none":
            return Dense()
        case "fp16":
            return Half(torch.float16)
        case "bf16":
            return Half(torch.bfloat16)
        case "topk":
            return TopK(ratio)
        case "powersgd":
            return PowerSGD(ratio)
    raise ValueError(
        f"there is no compression {name!r}; there are none, fp16, bf16, topk and powersgd"
    )
