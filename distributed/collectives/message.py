"""Messages that say what they are, so that a wrong one is never added."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainhall.distributed.collectives.errors import CollectiveInputError, ScheduleViolationError
from trainhall.distributed.collectives.schedule import Phase, named

Array = npt.NDArray[Any]

_PHASES = {phase: number for number, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True)
class Header:
    """The position of a message in a job's communication. Within a pair of ranks no two are
    alike."""

    step: int
    """Number of the collective, counted by all ranks alike."""
    phase: Phase
    round: int
    chunks: range
    source: int
    segment: int = 0
    """Index of the segment of the chunks, if a transport sends them in segments."""


@dataclass(frozen=True, slots=True)
class Message:
    header: Header
    payload: Array
    checksum: int
    """CRC-32 of header and payload: finds every flipped bit, and any run of up to 32."""


def seal(header: Header, data: Array) -> Message:
    """Seal a message with a copy of `data`, which the sender may change at once."""
    payload = data.copy()
    return Message(header, payload, _checksum(header, payload))


def verify(message: Message, expected: Header, elements: int) -> None:
    """See that a message is the one that comes next.

    Raises:
        ScheduleViolationError: with the first thing that is wrong.
    """
    got = message.header
    if message.checksum != _checksum(got, message.payload):
        raise ScheduleViolationError("checksum", f"{_described(expected)} arrived damaged")
    for name, has, wants in (
        ("source", got.source, expected.source),
        ("step", got.step, expected.step),
        ("phase", got.phase, expected.phase),
        ("round", got.round, expected.round),
        ("chunk", got.chunks, expected.chunks),
        ("segment", got.segment, expected.segment),
        ("length", len(message.payload), elements),
    ):
        if has != wants:
            raise ScheduleViolationError(
                name, f"expected {_described(expected)}, and got {has} for {wants}"
            )


def _described(header: Header) -> str:
    return (
        f"{named(header.chunks)} of step {header.step}, round {header.round} ({header.phase}), "
        f"from rank {header.source}"
    )


def packed(header: Header) -> bytes:
    """Pack all fields of a header."""
    h = header
    fields = (h.step, _PHASES[h.phase], h.round, h.chunks.start, h.chunks.stop, h.source, h.segment)
    return struct.pack("<7q", *fields)


def _checksum(header: Header, payload: Array) -> int:
    # The view as bytes is there for every type of element, also those without a buffer format.
    return zlib.crc32(payload.view(np.uint8).data, zlib.crc32(packed(header)))


def check_same_kind(tensors: Sequence[tuple[int, str]]) -> None:
    """See that all ranks bring the same number of elements, of the same type.

    Args:
        tensors: elements and type of each rank's tensor.

    Raises:
        CollectiveInputError: they differ; it says what each rank brings.
    """
    ranks: dict[tuple[int, str], list[int]] = {}
    for rank, tensor in enumerate(tensors):
        ranks.setdefault(tensor, []).append(rank)
    if len(ranks) > 1:
        listed = "; ".join(
            f"{elements} of {kind} on rank{'s' if len(who) > 1 else ''} " + ", ".join(map(str, who))
            for (elements, kind), who in ranks.items()
        )
        raise CollectiveInputError(f"ranks bring different numbers or types of elements: {listed}")
