"""Reading metric frames (format: `trainhall.training.link`) as views on the bytes.

What is wrong with the bytes themselves is refused. What is merely odd in what a script logged is
put right here, since refusing it would cost the whole batch: names are cut and cleaned, and rows
without a usable step or time are left out.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trainhall.arrays import Floats, Ints, np
from trainhall.monitoring.errors import DamagedFrameError
from trainhall.training.link.frames import TABLE, U16, Frame, MetricTable, complete_frames

MAX_NAME = 128
MAX_STEP = 2**53
"""Largest step: above it a browser could not distinguish steps."""
MAX_TIME = 253_402_300_799.0
"""The end of the year 9999, in seconds since the epoch."""

DIGESTS = ("chain_link", "chain_samples", "chain_weights")
"""Series that hold digests of a reproducible job's steps (`training.hash_chain`): their
curves show nothing, so they are returned only by name."""


@dataclass(frozen=True, slots=True)
class Table:
    """Points of several series that share steps `[rows]` and times `[rows]` (seconds)."""

    rank: int | None
    """None: job-wide."""
    steps: Ints
    times: Floats
    columns: dict[str, Floats]

    def as_lists(self) -> MetricTable:
        """Return the table in the form that is encoded."""
        columns = {name: values.tolist() for name, values in self.columns.items()}
        return MetricTable(self.rank, self.steps.tolist(), self.times.tolist(), columns)


def frame_headers(body: bytes) -> list[Frame]:
    """Return the frames of a body, their checksums verified.

    Raises:
        DamagedFrameError: when the body is not a run of whole frames in rising sequence.
    """
    found: list[Frame] = []
    try:
        for frame in complete_frames(body):
            following = found[-1].sequence + 1 if found else frame.sequence
            if not 1 <= frame.sequence < 2**62 or frame.sequence != following:
                raise DamagedFrameError(
                    f"frame {frame.sequence} at byte {frame.start} is out of sequence"
                )
            found.append(frame)
    except ValueError as error:
        raise DamagedFrameError(str(error)) from None
    end = found[-1].end if found else 0
    if end < len(body):
        raise DamagedFrameError(f"the frame at byte {end} is cut short")
    return found


def decode_frames(body: bytes) -> Iterator[Table]:
    """Yield the tables of every frame of a body, in order.

    Raises:
        DamagedFrameError: when a frame or a table in it is not whole.
    """
    for header in frame_headers(body):
        yield from decode_payload(body, header.payload, header.end)


def decode_payload(body: bytes, at: int, end: int) -> Iterator[Table]:
    """Yield the tables of one frame's payload. Arrays are views on `body`: nothing is copied.

    Raises:
        DamagedFrameError: when the payload is not exactly its tables.
    """
    try:
        (tables,) = U16.unpack_from(body, at)
        at += U16.size
        for _ in range(tables):
            table, at = _table(body, at, end)
            yield table
    except struct.error as error:
        raise DamagedFrameError(f"a table is not whole: {error}") from None
    if at != end:
        raise DamagedFrameError(f"a payload's length is off by {end - at} bytes")


def _table(body: bytes, at: int, end: int) -> tuple[Table, int]:
    rank, rows, columns = TABLE.unpack_from(body, at)
    at += TABLE.size
    if rank < -1:
        raise DamagedFrameError(f"there is no rank {rank}")
    names = []
    for _ in range(columns):
        (length,) = U16.unpack_from(body, at)
        at += U16.size
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
