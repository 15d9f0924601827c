"""Reading metric frames (the format is told in `trainhall.training.link`) as views on the bytes.

What is wrong with the bytes themselves is refused. What is merely odd in what a script logged is
put right here, since refusing it would cost the whole batch: names are cut and cleaned, and rows
without a usable step or time are left out.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainhall.monitoring.errors import DamagedFrameError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_NAME = 128
MAX_STEP = 2**53
"""Largest step: above it a browser could not tell one step from the next."""
MAX_TIME = 253_402_300_799.0
"""The end of the year 9999, in seconds since the epoch."""

DIGESTS = ("chain_link", "chain_samples", "chain_weights")
"""Series that hold digests of a reproducible job's steps (`training.hash_chain`): nobody looks at
their curves, so they are given only to those who ask by name."""

_MAGIC = b"THM1"
_FRAME = struct.Struct("<4sIQI")
_TABLE = struct.Struct("<iIH")
_U16 = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """Position of a frame in a body: the whole frame, and its payload."""

    sequence: int
    start: int
    payload: int
    end: int


@dataclass(frozen=True, slots=True)
class Table:
    """Points of several series that share steps `[rows]` and times `[rows]` (seconds)."""

    rank: int | None
    """None: job-wide."""
    steps: Ints
    times: Floats
    columns: dict[str, Floats]


def frame_headers(body: bytes) -> list[FrameHeader]:
    """The frames of a body, their checksums verified.

    Raises:
        DamagedFrameError: when the body is not a run of whole frames in rising sequence.
    """
    found: list[FrameHeader] = []
    view = memoryview(body)
    at = 0
    while at < len(body):
        if at + _FRAME.size > len(body):
            raise DamagedFrameError(f"{len(body) - at} bytes behind the last frame are no frame")
        magic, length, sequence, checksum = _FRAME.unpack_from(body, at)
        payload = at + _FRAME.size
        end = payload + length
        if magic != _MAGIC:
            raise DamagedFrameError(f"no metric frame at byte {at}")
        if end > len(body):
            raise DamagedFrameError(f"frame {sequence} at byte {at} is cut short")
        if zlib.crc32(view[payload:end]) != checksum:
            raise DamagedFrameError(f"frame {sequence} at byte {at} does not match its checksum")
        if not 1 <= sequence < 2**62 or (found and sequence != found[-1].sequence + 1):
            raise DamagedFrameError(f"frame {sequence} at byte {at} is out of sequence")
        found.append(FrameHeader(sequence, at, payload, end))
        at = end
    return found


def decode_frames(body: bytes) -> Iterator[Table]:
    """The tables of every frame of a body, in order.

    Raises:
        DamagedFrameError: when a frame or a table in it is not whole.
    """
    for header in frame_headers(body):
        yield from decode_payload(body, header.payload, header.end)


def decode_payload(body: bytes, at: int, end: int) -> Iterator[Table]:
    """The tables of one frame's payload. Arrays are views on `body`: nothing is copied.

    Raises:
        DamagedFrameError: when the payload is not exactly its tables.
    """
    try:
        (tables,) = _U16.unpack_from(body, at)
        at += _U16.size
        for _ in range(tables):
            table, at = _table(body, at, end)
            yield table
    except struct.error as error:
        raise DamagedFrameError(f"a table is not whole: {error}") from None
    if at != end:
        raise DamagedFrameError(f"a payload's length is off by {end - at} bytes")


def encode_frame(sequence: int, tables: Sequence[Table]) -> bytes:
    """A frame of these tables: part of one that was read."""
    parts = [_U16.pack(len(tables))]
    for table in tables:
        rank = -1 if table.rank is None else table.rank
        parts.append(_TABLE.pack(rank, len(table.steps), len(table.columns)))
        for name in table.columns:
            encoded = name.encode()
            parts += [_U16.pack(len(encoded)), encoded]
        parts += [table.steps.tobytes(), table.times.tobytes()]
        parts += [values.tobytes() for values in table.columns.values()]
    payload = b"".join(parts)
    return _FRAME.pack(_MAGIC, len(payload), sequence, zlib.crc32(payload)) + payload


def _table(body: bytes, at: int, end: int) -> tuple[Table, int]:
    rank, rows, columns = _TABLE.unpack_from(body, at)
    at += _TABLE.size
    if rank < -1:
        raise DamagedFrameError(f"there is no rank {rank}")
    names = []
    for _ in range(columns):
        (length,) = _U16.unpack_from(body, at)
        at += _U16.size
        names.append(_clean_name(body[at : at + length]))
        at += length
    if at + 8 * rows * (2 + columns) > end:
        raise DamagedFrameError(f"a table of {rows} rows and {columns} columns is cut short")
    steps = np.frombuffer(body, "<i8", rows, at)
    at += 8 * rows
    times = np.frombuffer(body, "<f8", rows, at)
    at += 8 * rows
    values: dict[str, Floats] = {}
    for name in names:
        values[name] = np.frombuffer(body, "<f8", rows, at)
        at += 8 * rows
    # A comparison with NaN is false, so that a time that is none is odd as well.
    if rows and not (
        steps.min() >= 0
        and steps.max() <= MAX_STEP
        and times.min() >= 0.0
        and times.max() <= MAX_TIME
    ):
        usable = (steps >= 0) & (steps <= MAX_STEP) & (times >= 0.0) & (times <= MAX_TIME)
        steps, times = steps[usable], times[usable]
        values = {name: column[usable] for name, column in values.items()}
    return Table(None if rank < 0 else rank, steps, times, values), at


def _clean_name(raw: bytes) -> str:
    name = raw.decode("utf-8", "replace")[:MAX_NAME]
    if name.isprintable() and name:
        return name
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) or "unnamed"
