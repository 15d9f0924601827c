"""Each rank sends the largest numbers of its gradient, and the others once they have grown."""

from collections.abc import Mapping

import torch
from torch import Tensor

from trainhall.distributed.compression.error_feedback import Residuals
from trainhall.distributed.compression.interface import Bucket, Exchange
from trainhall.distributed.compression.largest import largest


class TopK:
    """The numbers of the largest magnitude of each bucket, as pairs of place and value.

    Ranks choose different places, so pairs are gathered rather than added up on the way: of n ranks
    each receives (n-1) · ratio · size numbers, which pays while that is well below the size. What
    earlier steps left unsent is added before the choice.

    Args:
        ratio: of a bucket's numbers that each rank sends, in (0, 1]; at least one is sent.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._residuals = Residuals()

    def combine(self, bucket: Bucket, exchange: Exchange) -> None:
        flat, residual = bucket.flat, self._residuals.of(bucket)
        flat.add_(residual)
        places = largest(flat, sent(len(flat), self.ratio))
        values = flat[places]
        # An infinity or NaN is among the largest, so it is sent; it must not stay here forever.
        if values.isfinite().all():
            residual.copy_(flat)
            residual[places] = 0
        packets = exchange.gather(_packed(places, values))
        flat.zero_()
        for packet in packets:
            flat.index_add_(0, *_unpacked(packet, flat.dtype))

    def state_dict(self) -> dict[str, Tensor]:
        return self._residuals.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._residuals.load_state_dict(state)


def sent(elements: int, ratio: float) -> int:
    """Return how many of `elements` numbers are sent."""
    return min(elements, max(1, round(elements * ratio)))


def _packed(places: Tensor, values: Tensor) -> Tensor:
    """Pack both as bytes, to travel together; a bucket has less than 2³¹ numbers."""
    return torch.cat([places.to(torch.int32).view(torch.uint8), values.view(torch.uint8)])


def _unpacked(packet: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    count = len(packet) // (torch.int32.itemsize + dtype.itemsize)
    places, values = packet.split([count * torch.int32.itemsize, count * dtype.itemsize])
    # Bytes can be taken for wider numbers only where such a number may begin.
    return places.clone().view(torch.int32), values.clone().view(dtype)
