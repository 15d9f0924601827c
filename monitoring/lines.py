"""Cutting a rank's output into lines: any bytes at all, in pieces of bounded size."""

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

CHUNK_BYTES = 256 * 1024
"""About the most bytes of output that one chunk holds."""
LOG_FULL = 2**62
"""The offset that is wanted next of output of which no more is stored."""
_ZLIB_LEVEL = 3

PIECE_BYTES = 16 * 1024
"""A longer line is cut into pieces of this size, so that no reader ever holds ten megabytes."""
# ECMA-48: control sequences (colours), operating system commands (links) and short escapes.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


def plain_text(line: bytes) -> str:
    """Return a line as a terminal would show it, without colours and other escapes."""
    if b"\x1b" in line:
        line = _ESCAPE.sub(b"", line)
    return line.decode("utf-8", errors="replace")


def cut_lines(data: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines or full pieces, and the unfinished rest (under `PIECE_BYTES`).

    A lone carriage return ends a line too: progress bars redraw theirs that way. One at the very
    end waits, since a line feed may follow it.
    """
    end = max(data.rfind(b"\n") + 1, data.rfind(b"\r", 0, max(len(data) - 1, 0)) + 1)
    while len(data) - end >= PIECE_BYTES:
        end += _piece(data, end)
    return data[:end], data[end:]


def split_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of `cut_lines`: offset within `data`, and bytes without the line's end.

    Of a line that was redrawn, only the last state counts, as a terminal would show it.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        if end < 0:
            end = len(data)
        line = data[at:end].rstrip(b"\r")
        start = line.rfind(b"\r") + 1
        while len(line) - start > PIECE_BYTES:
            size = _piece(line, start)
            yield at + start, line[start : start + size]
            start += size
        yield at + start, line[start:]
        at = end + 1


def log_chunks(
    file: dict[str, Any], seq: int, start: int, text: bytes, now: datetime, *, superseded: bool
) -> list[dict[str, Any]]:
    """Return rows for lines from byte `start` of their file; their sequences follow `seq`."""
    rows = []
    for part in _parts(text):
        seq += 1
        rows.append(
            {
                "job_id": file["job_id"],
                "seq": seq,
                "attempt": file["attempt"],
                "rank": file["rank"],
                "stream": file["stream"],
                "offset": start,
                "length": len(part),
                "time": now,
                "data": zlib.compress(part, _ZLIB_LEVEL),
                "superseded": superseded,
            }
        )
        start += len(part)
    return rows


def full_note(text: bytes, limit: int) -> bytes:
    """Return the last text that is stored of a job's output, and why it is the last."""
    size = f"{limit / 1024**3:g} GiB" if limit >= 1024**3 else f"{limit / 1024**2:.3g} MiB"
    note = (
        f"[trainhall] the output of this job has reached {size}; the rest is not stored. The hosts "
        "keep it while the attempt runs; print less, or raise TRAINHALL_LOG_BYTES_PER_JOB.\n"
    )
    return text + (b"" if text.endswith(b"\n") else b"\n") + note.encode()


def _parts(text: bytes) -> Iterable[bytes]:
    """Split text of whole lines in parts of about `CHUNK_BYTES`, of whole lines again."""
    at = 0
    while len(text) - at > CHUNK_BYTES:
        end = text.rfind(b"\n", at, at + CHUNK_BYTES) + 1
        end = end or text.find(b"\n", at) + 1 or len(text)
        yield text[at:end]
        at = end
    if at < len(text):
        yield text[at:]


def _piece(data: bytes, at: int) -> int:
    """Return the length of the piece at `at`, without the start of a cut character."""
    end = at + PIECE_BYTES
    if end < len(data):
        for back in range(4):
            if data[end - back] & 0xC0 != 0x80:  # a character begins here
                return PIECE_BYTES - back
    return PIECE_BYTES
