"""Schedules between GPUs: messages go point to point over NCCL.

NCCL's messages carry nothing but their bytes, and two ranks match them in the order in which both
begin them. So a rank begins what it sends and receives in a round at once, piece by piece, and no
round ahead (`Transport.lockstep`). A round's messages are then a step that all ranks take in the
same order, and no two wait for each other. Sizes and types are compared before, by
`Communicator.agree`; a message that does not belong there is noticed only by a timeout.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed.collectives.message import Array, Header
from trainhall.distributed.collectives.transport import PeerGoneError

_POLL_SECONDS = 20e-6
"""Between two polls of a message; NCCL's own wait with a timeout polls once a millisecond."""
_AT_ONCE = timedelta(milliseconds=1)


class Nccl:
    """A rank's end of a process group; see `Transport`. Making one is a collective.

    A collective has ended on the device when `Communicator.run` returns, but for the last addition:
    that is in the order of the current stream, in which its result is to be used.

    Args:
        group: of backend `nccl`, used by one thread at a time and for nothing else. A timeout
            breaks it for good.
        device: of the tensors.
    """

    lockstep = True

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._begun: list[_Line] = []
        self.rank = group.rank()
        self.world_size = group.size()
        # The first messages of a group have to be of all its ranks at once.
        group.allreduce([torch.zeros(1, device=device)]).wait()

    def sender(self, peer: int, header: Header, elements: int, kind: str) -> "_Line":
        return _Line(self._begun, dist.isend, peer)

    def receiver(self, peer: int, header: Header, elements: int, kind: str) -> "_Line":
        return _Line(self._begun, dist.irecv, peer)

    def start(self) -> None:
        messages = [
            dist.P2POp(line.begins, line.buffer, group=self._group, group_peer=line.peer)
            for line in self._begun
        ]
        try:
            with torch.cuda.device(self._device):  # of this thread
                (work,) = dist.batch_isend_irecv(messages)  # NCCL makes one piece of work of them
        except dist.DistBackendError as error:
            raise PeerGoneError(_reason(error)) from error
        for line in self._begun:
            line.work = work
        self._begun.clear()

    def leave(self, reason: str) -> None:
        """Abort what is under way: a kernel that waits for a peer would never end."""
        self._group._get_backend(self._device).abort()

    def wrap(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def unwrap(self, buffer: Tensor) -> Array:
        array: Array = buffer.cpu().numpy()
        return array

    def empty_like(self, buffer: Tensor, elements: int) -> Tensor:
        return buffer.new_empty(elements)


class _Line:
    work: dist.Work
    buffer: Tensor

    def __init__(self, begun: "list[_Line]", begins: Callable[..., Any], peer: int) -> None:
        self._begun = begun
        self.begins = begins
        self.peer = peer

    def begin(self, step: int, buffer: Tensor) -> None:
        self.buffer = buffer
        self._begun.append(self)

    def wait(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self.work.is_completed():
            if time.monotonic() > ends:
                raise TimeoutError
            time.sleep(_POLL_SECONDS)
        try:
            # Raises what went wrong, and lets the current stream continue from here.
            self.work.wait(_AT_ONCE)
        except RuntimeError as error:
            raise PeerGoneError(_reason(error)) from error


def _reason(error: RuntimeError) -> str:
    return str(error).partition("\n")[0]
