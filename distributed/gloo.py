"""Schedules between processes: messages go point to point over Gloo, between CPU tensors.

Gloo's messages carry a tag and no more. A longer one than its receiver wants ends the process, and
a shorter one fills a part of the buffer, silently. So the tag holds all that a header does: it
is a digest of it, of the size, and of the type. A message that is not the one that comes next is
received by no rank, and both sides time out.
"""

import re
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed.collectives.message import Array, Header, packed
from trainhall.distributed.collectives.transport import PeerGoneError

_TAGS = 1 << 31
_APART = 0x9E3779B1
"""Odd, so that no two steps in a row of 2³¹ have the same tag for a message."""
_UNUSED_TAG = _TAGS - 1
_TIMED_OUT = "Timed out"
"""In the message of Gloo's error, which is of no class of its own."""
_LEAST = 1e-3
_SHORTEST = timedelta(seconds=_LEAST)
"""Gloo takes a timeout of zero for none at all."""
_Group = dist.ProcessGroup | dist.ProcessGroupGloo
_Begin = Callable[[list[Tensor], int, int], dist.Work]


class Gloo:
    """A rank's end of a process group; see `Transport`.

    Args:
        group: of backend `gloo`, used by one thread at a time and with no other point-to-point
            messages. An error breaks it for good, since its connections are closed then.
    """

    lockstep = False

    def __init__(self, group: _Group) -> None:
        self._backend = _backend(group)
        self.rank = group.rank()
        self.world_size = group.size()

    def sender(self, peer: int, header: Header, elements: int, kind: str) -> "_Line":
        return _Line(self._backend.send, peer, _digest(header, elements, kind))

    def receiver(self, peer: int, header: Header, elements: int, kind: str) -> "_Line":
        return _Line(self._backend.recv, peer, _digest(header, elements, kind))

    def start(self) -> None:
        """Do nothing: messages go when they are begun."""

    def leave(self, reason: str) -> None:
        """Close the connections, so that peers notice now and not when the process ends.

        Gloo does that when a message times out, so this waits for one that is never sent.
        """
        for peer in range(self.world_size):
            if peer != self.rank and _times_out(self._backend.recv, peer):
                break

    def wrap(self, array: Array) -> Tensor:
        return torch.from_numpy(array)

    def unwrap(self, buffer: Tensor) -> Array:
        array: Array = buffer.numpy()
        return array

    def empty_like(self, buffer: Tensor, elements: int) -> Tensor:
        return buffer.new_empty(elements)


class _Line:
    __slots__ = ("_begin", "_digest", "_peer", "_work")

    def __init__(self, begin: _Begin, peer: int, digest: int) -> None:
        self._begin = begin
        self._peer = peer
        self._digest = digest
        self._work: dist.Work

    def begin(self, step: int, buffer: Tensor) -> None:
        tag = (self._digest + step * _APART) % _TAGS
        try:
            self._work = self._begin([buffer], self._peer, tag)
        except RuntimeError as error:
            raise PeerGoneError(_reason(str(error))) from error

    def wait(self, seconds: float) -> None:
        try:
            self._work.wait(timedelta(seconds=seconds) if seconds > _LEAST else _SHORTEST)
        except RuntimeError as error:
            if _TIMED_OUT in str(error):
                raise TimeoutError from error
            raise PeerGoneError(_reason(str(error))) from error


def _backend(group: _Group) -> Any:
    """Return the backend that sends and receives for a group: the group would hand each message on
    through PyTorch's dispatcher, which costs as much as all that is done here."""
    if isinstance(group, dist.ProcessGroupGloo):
        return group
    backend = group._get_backend(torch.device("cpu"))
    return backend if isinstance(backend, dist.ProcessGroupGloo) else group


def _times_out(begin: _Begin, peer: int) -> bool:
    """Return whether a message timed out; there is none from a peer that is gone."""
    try:
        begin([torch.empty(1)], peer, _UNUSED_TAG).wait(_SHORTEST)
    except RuntimeError as error:
        return _TIMED_OUT in str(error)
    return False


def _digest(header: Header, elements: int, kind: str) -> int:
    return zlib.crc32(f"{elements} {kind}".encode(), zlib.crc32(packed(header)))


def _reason(text: str) -> str:
    """Return Gloo's message, without the line of its source and the advice."""
    return re.sub(r"^\[\S+\] ", "", text.partition(". This is typically")[0])
