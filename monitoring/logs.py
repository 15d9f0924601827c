"""Reading what the ranks wrote, line by line, in the order in which it came."""

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, select

from trainhall.db.database import Database
from trainhall.db.models import LogChunk
from trainhall.monitoring.errors import BadCursor
from trainhall.monitoring.lines import split_lines

_CHUNKS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, or a piece of a very long one."""

    attempt: int
    rank: int
    stream: str
    offset: int
    """Of its first byte in the rank's output file."""
    time: datetime
    """When the coordinator received it."""
    text: str
    """Without the line's end; bytes that are not UTF-8 are replaced."""
    void: bool
    """Written after its attempt was revoked."""


@dataclass(frozen=True, slots=True)
class LogPage:
    items: list[LogLine]
    next_cursor: str
    """Where the next page begins, now or when more was written."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Before line `line` of the chunk at `seq`."""

    seq: int
    line: int

    def encode(self) -> str:
        text = json.dumps([self.seq, self.line], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "_Cursor":
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            seq, line = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        except (ValueError, TypeError, binascii.Error, RecursionError):
            raise BadCursor(f"{text!r} is no cursor of a log; use next_cursor of a page") from None
        whole = isinstance(seq, int) and isinstance(line, int)
        if not whole or not (0 <= seq < 2**62 and 0 <= line < 2**62):
            raise BadCursor(f"{text!r} is no cursor of a log; use next_cursor of a page")
        return cls(seq, line)


async def read_logs(
    database: Database,
    job_id: str,
    *,
    rank: int | None = None,
    stream: str | None = None,
    attempt: int | None = None,
    after: str | None = None,
    tail: int | None = None,
    limit: int = 1000,
) -> LogPage:
    """At most `limit` lines from the cursor `after` or the beginning, or the last `tail` lines.

    Lines stand in the order in which they were received. A line is told once it has ended, or after
    a second without an end. An unknown job has no lines.

    Raises:
        BadCursor: when `after` is none.
    """
    cursor = None if after is None else _Cursor.decode(after)
    chosen = [
        column == value
        for column, value in (
            (LogChunk.rank, rank),
            (LogChunk.stream, stream),
            (LogChunk.attempt, attempt),
        )
        if value is not None
    ]
    query = select(LogChunk.__table__).where(LogChunk.job_id == job_id, *chosen)

    def read(connection: Connection) -> LogPage:
        if cursor is not None:
            return _page(connection, query, cursor, limit)
        if tail is not None:
            return _page(connection, query, _start_of_tail(connection, query, tail), tail)
        return _page(connection, query, _Cursor(0, 0), limit)

    return await database.read(read)


def _page(connection: Connection, query: Select[Any], start: _Cursor, limit: int) -> LogPage:
    items: list[LogLine] = []
    at = start
    while True:
        chunks = connection.execute(
            query.where(LogChunk.seq >= at.seq).order_by(LogChunk.seq).limit(_CHUNKS_AT_ONCE)
        ).all()
        for chunk in chunks:
            lines = _lines(chunk)
            skip = at.line if chunk.seq == at.seq else 0
            take = lines[skip : skip + limit - len(items)]
            items += [_log_line(chunk, offset, line) for offset, line in take]
            if skip + len(take) < len(lines):
                return LogPage(items, _Cursor(chunk.seq, skip + len(take)).encode())
            at = _Cursor(chunk.seq + 1, 0)
        if len(chunks) < _CHUNKS_AT_ONCE or len(items) >= limit:
            return LogPage(items, at.encode())


def _start_of_tail(connection: Connection, query: Select[Any], count: int) -> _Cursor:
    """Before the last `count` lines."""
    before, missing = 2**62, count
    while True:
        chunks = connection.execute(
            query.where(LogChunk.seq < before).order_by(LogChunk.seq.desc()).limit(_CHUNKS_AT_ONCE)
        ).all()
        for chunk in chunks:
            lines = len(_lines(chunk))
            if lines >= missing:
                return _Cursor(chunk.seq, lines - missing)
            missing -= lines
            before = chunk.seq
        if len(chunks) < _CHUNKS_AT_ONCE:
            return _Cursor(0, 0)


def _lines(chunk: Any) -> list[tuple[int, bytes]]:
    return list(split_lines(zlib.decompress(chunk.data)))


def _log_line(chunk: Any, offset: int, line: bytes) -> LogLine:
    return LogLine(
        attempt=chunk.attempt,
        rank=chunk.rank,
        stream=chunk.stream,
        offset=chunk.offset + offset,
        time=chunk.time,
        text=line.decode("utf-8", errors="replace"),
        void=chunk.void,
    )
