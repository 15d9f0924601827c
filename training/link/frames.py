"""Binary frames of metrics (`trainhall.training.link`): writing them, and finding their bounds."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FRAME_MAGIC = b"THM1"
_FRAME = struct.Struct("<4sIQI")
TABLE = struct.Struct("<iIH")
U16 = struct.Struct("<H")
MAX_FRAME_BYTES = 8 * 1024 * 1024
TRACKING = "tracking-"
"""Beginning of the names of writers of what tracking clients log (`cluster.wire.writers`)."""
EVENT_FILES = f"{TRACKING}files-"
"""The same of what event files have."""


@dataclass
class MetricTable:
    """Points of several series that share their steps and times."""

    rank: int | None
    """None: job-wide."""
    steps: Sequence[int]
    times: Sequence[float]
    columns: dict[str, Sequence[float]]


def encode_tables(tables: Sequence[MetricTable]) -> bytes:
    """Encode the payload of one frame."""
    parts = [U16.pack(len(tables))]
    for table in tables:
        rows = len(table.steps)
        parts.append(TABLE.pack(-1 if table.rank is None else table.rank, rows, len(table.columns)))
        for name in table.columns:
            encoded = name.encode()
            parts.append(U16.pack(len(encoded)))
            parts.append(encoded)
        parts.append(struct.pack(f"<{rows}q", *table.steps))
        parts.append(struct.pack(f"<{rows}d", *table.times))
        parts.extend(struct.pack(f"<{rows}d", *values) for values in table.columns.values())
    return b"".join(parts)


def decode_tables(payload: bytes) -> Iterator[MetricTable]:
    """Yield the tables of one frame's payload, on the standard library alone: for small files.

    Raises:
        struct.error: it is none.
    """
    (count,) = U16.unpack_from(payload)
    at = U16.size
    for _ in range(count):
        rank, rows, width = TABLE.unpack_from(payload, at)
        at += TABLE.size
        names = []
        for _ in range(width):
            (length,) = U16.unpack_from(payload, at)
            at += U16.size + length
            names.append(payload[at - length : at].decode())
        parts = []
        for kind in ("q", "d", *("d" * width)):
            parts.append(struct.unpack_from(f"<{rows}{kind}", payload, at))
            at += 8 * rows
        steps, times, *columns = parts
        yield MetricTable(
            None if rank < 0 else rank, steps, times, dict(zip(names, columns, strict=True))
        )


def encode_frame(sequence: int, payload: bytes) -> bytes:
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(
            f"a metric frame holds at most {MAX_FRAME_BYTES} bytes, not {len(payload)}"
        )
    return _FRAME.pack(FRAME_MAGIC, len(payload), sequence, zlib.crc32(payload)) + payload


@dataclass(frozen=True, slots=True)
class Frame:
    """Position of a frame in the bytes that were read."""

    sequence: int
    start: int
    payload: int
    end: int


def complete_frames(data: bytes) -> Iterator[Frame]:
    """Yield the whole frames at the start of `data`; a partial one at the end is left out.

    Raises:
        ValueError: where a frame should begin and does not, or its checksum is wrong.
    """
    view = memoryview(data)
    at = 0
    while at + _FRAME.size <= len(data):
        magic, length, sequence, checksum = _FRAME.unpack_from(data, at)
        if magic != FRAME_MAGIC or length > MAX_FRAME_BYTES:
            raise ValueError(f"no metric frame at byte {at}")
        payload, end = at + _FRAME.size, at + _FRAME.size + length
        if end > len(data):
            return
        if zlib.crc32(view[payload:end]) != checksum:
            raise ValueError(f"the checksum of metric frame {sequence} at byte {at} is wrong")
        yield Frame(sequence, at, payload, end)
        at = end
