"""Schedules between processes: messages go point to point over Gloo, between CPU tensors."""

import re
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed.collectives.message import Array, Header
from trainhall.distributed.collectives.transport import PeerGone, Pending

_TAG = 20
"""Keeps these messages apart from others that the group's users send."""
_LEAST = timedelta(milliseconds=1)
"""Gloo takes a timeout of zero for none at all."""


class Gloo:
    """A rank's end of a process group; see `Transport`.

    Args:
        group: of backend `gloo`, used by one thread at a time. A timeout breaks it for good, since
            Gloo then closes its connections.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = group.rank()
        self.world_size = group.size()

    def send(self, peer: int, header: Header, data: Tensor) -> Pending:
        return _Transfer(self._group.send([data], peer, _TAG))

    def receive(self, peer: int, header: Header, into: Tensor) -> Pending:
        return _Transfer(self._group.recv([into], peer, _TAG))

    def leave(self, reason: str) -> None:
        """Nothing to do: peers hear of it when the process ends and its sockets close."""

    def wrap(self, array: Array) -> Tensor:
        return torch.from_numpy(array)

    def unwrap(self, buffer: Tensor) -> Array:
        array: Array = buffer.numpy()
        return array

    def empty_like(self, buffer: Tensor, elements: int) -> Tensor:
        return buffer.new_empty(elements)


class _Transfer:
    def __init__(self, work: dist.Work) -> None:
        self._work = work

    def wait(self, seconds: float) -> None:
        try:
            self._work.wait(max(_LEAST, timedelta(seconds=seconds)))
        except RuntimeError as error:
            # Gloo raises nothing more specific.
            if "Timed out" in str(error):
                raise TimeoutError from error
            raise PeerGone(_reason(str(error))) from error


def _reason(text: str) -> str:
    """What Gloo says, without the line of its source and the advice."""
    return re.sub(r"^\[\S+\] ", "", text.partition(". This is typically")[0])
