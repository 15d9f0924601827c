"""Pairs of ranks that exchange by the backend's own messages, for `probe.measure_links`.

On a GPU that is what NCCL's collectives are made of, at whose speed gradients are combined there;
our own rings have the host look at every message, which on its links takes longer than the message.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from trainhall.distributed import process_group
from trainhall.distributed.probe import SIZES, Pairs


class ByMessages:
    """Exchanges between tensors on a device. Making one is a collective.

    Args:
        group: of the device's backend, used for nothing else meanwhile.
    """

    sizes = (*SIZES, 64 << 20)
    """A GPU's links take 16 MiB in less time than they need to get under way."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        # NCCL has the first messages of a group be of all its ranks at once.
        dist.all_reduce(torch.zeros(1, device=device), group=group)

    @property
    def world_size(self) -> int:
        return self._group.size()

    def seconds(self, pairs: Pairs, size: int, number: int) -> list[float]:
        peer = pairs.peer(self._group.rank())
        if peer is None:
            return [0.0] * number
        outgoing = torch.zeros(size // 2, dtype=torch.uint8, device=self._device)
        incoming = torch.empty_like(outgoing)
        both = [
            dist.P2POp(operation, buffer, group=self._group, group_peer=peer)
            for operation, buffer in ((dist.isend, outgoing), (dist.irecv, incoming))
        ]

        def exchange() -> None:
            for _ in range(2):  # as a ring of two: half of it there, then the other half back
                for work in dist.batch_isend_irecv(both):
                    work.wait()

        return [_timed(exchange, self._device) for _ in range(number)]

    def slowest(self, seconds: float) -> float:
        largest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=process_group.cpu_group())
        return largest.item()


def _timed(work: Callable[[], None], device: torch.device) -> float:
    """Time from begin to end in seconds, on a GPU those of the current stream."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1000
