"""Cutting a rank's output into lines: any bytes at all, in pieces of bounded size."""

import re
from collections.abc import Iterator

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


def _piece(data: bytes, at: int) -> int:
    """Return the length of the piece at `at`, without the start of a cut character."""
    end = at + PIECE_BYTES
    if end < len(data):
        for back in range(4):
            if data[end - back] & 0xC0 != 0x80:  # a character begins here
                return PIECE_BYTES - back
    return PIECE_BYTES
