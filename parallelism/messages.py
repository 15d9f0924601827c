"""Messages between two ranks: tensors, and in front of them who sent what, and for which step."""

from collections.abc import Sequence
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

_HEADER_BYTES = 64
"""Three int64, padded to align the tensors after them."""
_ALIGNMENT = 16


class Content(IntEnum):
    """The content of a message."""

    GRADIENTS = 1
    WEIGHTS = 2


class WrongMessageError(RuntimeError):
    """A message of another rank or step than the one that was due."""


class RankLostError(RuntimeError):
    """The rank at the other end is gone, or has not answered within the group's timeout."""


class Packet:
    """Memory for a message; it is one block, so that a message is one call.

    Args:
        like: tensors on one device, of the shapes and dtypes that are sent.
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        offsets, end = [], _HEADER_BYTES
        for tensor in like:
            offsets.append(end)
            end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._bytes = torch.zeros(end, dtype=torch.uint8, device=like[0].device)
        self._header = self._bytes[:24].view(torch.int64)
        self.tensors = [
            self._bytes[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for at, tensor in zip(offsets, like, strict=True)
        ]

    def send(self, content: Content, step: int, to: Sequence[int]) -> None:
        """Send the tensors to ranks; returns when they may be overwritten.

        Raises:
            RankLostError: one of them has not taken it.
        """
        header = torch.tensor([content, step, dist.get_rank()])
        self._header.copy_(header)
        sent = [(rank, _started(self._bytes, rank, content, step)) for rank in to]
        for rank, work in sent:
            try:
                work.wait()
            except RuntimeError as error:
                raise RankLostError(_lost("send", content, step, rank)) from error

    def receive(self, content: Content, step: int, source: int) -> None:
        """Take the one message that is due.

        Raises:
            WrongMessageError: it is another; naming both.
            RankLostError: none came.
        """
        try:
            dist.recv(self._bytes, source)
        except RuntimeError as error:
            raise RankLostError(_lost("receive", content, step, source)) from error
        found = self._header.tolist()
        if found != [content, step, source]:
            raise WrongMessageError(
                f"rank {dist.get_rank()} waited for {_described(content, step, source)}, but "
                f"got {_described(*found)}: the ranks are out of sync"
            )


def _started(data: Tensor, rank: int, content: Content, step: int) -> dist.Work:
    try:
        work = dist.isend(data, rank)
    except RuntimeError as error:
        raise RankLostError(_lost("send", content, step, rank)) from error
    assert work is not None  # only a rank outside the group has none
    return work


def _described(content: int, step: int, rank: int) -> str:
    known = content in set(Content)
    name = Content(content).name.lower() if known else f"content {content}"
    return f"the {name} of rank {rank} for step {step}"


def _lost(verb: str, content: Content, step: int, other: int) -> str:
    way = "to" if verb == "send" else "from"
    return (
        f"rank {dist.get_rank()} could not {verb} {content.name.lower()} {way} rank {other} "
        f"for step {step}: it has ended, or did not answer in time"
    )
