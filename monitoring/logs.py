"""Reading what the ranks wrote, line by line, in the order in which it came."""

import zlib
from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, Select, func, select

from trainhall.db.database import Database
from trainhall.db.models import LogChunk
from trainhall.db.queries import cursors
from trainhall.db.views import VALUE, Time
from trainhall.documented import Documented
from trainhall.monitoring.errors import InvalidLogCursorError, LineNotFoundError
from trainhall.monitoring.lines import plain_text, split_lines

_CHUNKS_AT_ONCE = 64
SEARCH_BYTES = 32 * 1024 * 1024
"""So much output is searched for one page; the next page searches on."""


@dataclass(frozen=True, slots=True)
class LogLine(Documented):
    """Line that a rank wrote, or a piece of a very long one."""

    __pydantic_config__ = VALUE
    attempt: int
    rank: int
    stream: Annotated[str, Field(json_schema_extra={"enum": ["stdout", "stderr"]})]
    offset: int
    """Offset of its first byte in the rank's output file."""
    time: Time
    """When the coordinator received it."""
    text: str
    """Without its line break; bytes that are not UTF-8 are replaced."""
    superseded: bool
    """True if it was written after its attempt was replaced, or had continued without its rank."""


@dataclass(frozen=True, slots=True)
class LogPage(Documented):
    """Lines of a job's ranks."""

    __pydantic_config__ = VALUE
    items: list[LogLine]
    next_cursor: str
    """Hand it back as `after` for the next page, now or when more was written."""
    previous_cursor: str | None
    """Hand it back as `before` for the lines before this page; null when there are none."""
    more: bool
    """Stored lines after this page were not searched yet."""


@dataclass(frozen=True, slots=True)
class LineId:
    """Names one line of a job, for good."""

    attempt: int
    rank: int
    stream: str
    offset: int
    """Offset of its first byte in the rank's output file."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Before line `line` of the chunk at `seq`."""

    seq: int
    line: int

    def encode(self) -> str:
        return cursors.encode("logs", self.seq, self.line)

    @classmethod
    def decode(cls, field: str, text: str) -> "_Cursor":
        try:
            seq, line = cursors.decode("logs", text, int, int)
        except ValueError:
            raise InvalidLogCursorError(field, text) from None
        return cls(int(seq), int(line))


_BEGINNING = _Cursor(0, 0)
_END = _Cursor(2**62, 0)


async def read_logs(
    database: Database,
    job_id: str,
    *,
    rank: int | None = None,
    stream: str | None = None,
    attempt: int | None = None,
    after: str | None = None,
    before: str | None = None,
    at: LineId | None = None,
    tail: int | None = None,
    search: str | None = None,
    limit: int = 1000,
) -> LogPage:
    """Return at most `limit` lines from the cursor `after` or the beginning.

    Instead of there, a page may end at the cursor `before`, begin some lines ahead of the line
    `at`, or hold the last `tail` lines. With `search` it holds only lines from `after` on whose
    text has these characters in it, in upper or lower case, colours left aside.

    Lines stand in the order in which they were received. A line is returned once it has ended,
    or after a second without an end. An unknown job has no lines.

    Raises:
        InvalidLogCursorError: when `after` or `before` is none.
        LineNotFoundError: when the line `at` is not stored.
    """
    cursor = _BEGINNING if after is None else _Cursor.decode("after", after)
    end = None if before is None else _Cursor.decode("before", before)
    query = _chunks(job_id, rank, stream, attempt)

    def read(connection: Connection) -> LogPage:
        if search is not None:
            return _found(connection, query, cursor, limit, search)
        if after is not None:
            return _page(connection, query, cursor, limit)
        if end is not None:
            start = _back(connection, query, limit, end)
            return _page(connection, query, start, limit, end)
        if at is not None:
            start = _back(connection, query, limit // 2, _position(connection, query, at))
            return _page(connection, query, start, limit)
        if tail is not None:
            return _page(connection, query, _back(connection, query, tail, _END), tail)
        return _page(connection, query, _BEGINNING, limit)

    return await database.read(read)


async def log_text(
    database: Database,
    job_id: str,
    *,
    rank: int | None = None,
    stream: str | None = None,
    attempt: int | None = None,
) -> AsyncIterator[str]:
    """Yield the lines stored by now as text, a page at a time.

    Without `rank`, each begins with its rank, as in `[3] `, if several ranks have written.
    """
    newest, last_rank = await database.read(partial(_newest, job_id=job_id))
    prefixed = rank is None and last_rank > 0
    query = _chunks(job_id, rank, stream, attempt).where(LogChunk.seq <= newest)
    at = _BEGINNING
    more = True
    while more:
        page = await database.read(partial(_page, query=query, start=at, limit=1000))
        yield "".join(
            f"[{line.rank}] {line.text}\n" if prefixed else f"{line.text}\n" for line in page.items
        )
        at, more = _Cursor.decode("after", page.next_cursor), page.more


def _newest(connection: Connection, job_id: str) -> tuple[int, int]:
    """Return the newest sequence of a job's output, and its last rank that has written."""
    newest = select(func.max(LogChunk.seq)).where(LogChunk.job_id == job_id)
    last_rank = select(func.max(LogChunk.rank)).where(LogChunk.job_id == job_id)
    return connection.scalar(newest) or 0, connection.scalar(last_rank) or 0


def _chunks(job_id: str, rank: int | None, stream: str | None, attempt: int | None) -> Select[Any]:
    chosen = [
        column == value
        for column, value in (
            (LogChunk.rank, rank),
            (LogChunk.stream, stream),
            (LogChunk.attempt, attempt),
        )
        if value is not None
    ]
    return select(LogChunk.__table__).where(LogChunk.job_id == job_id, *chosen)


def _page(
    connection: Connection, query: Select[Any], start: _Cursor, limit: int, end: _Cursor = _END
) -> LogPage:
    """Return lines from `start` on, and none at or behind `end`."""
    items: list[LogLine] = []
    at = start
    more = True
    while more and len(items) < limit:
        chunks = connection.execute(
            query.where(LogChunk.seq >= at.seq, LogChunk.seq <= end.seq)
            .order_by(LogChunk.seq)
            .limit(_CHUNKS_AT_ONCE)
        ).all()
        for chunk in chunks:
            lines = _lines(chunk)
            skip = at.line if chunk.seq == at.seq else 0
            last = min(end.line if chunk.seq == end.seq else len(lines), skip + limit - len(items))
            items += [_log_line(chunk, offset, line) for offset, line in lines[skip:last]]
            if last < len(lines):
                at = _Cursor(chunk.seq, max(skip, last))
                return _page_of(items, start, at, more=True)
            at = _Cursor(chunk.seq + 1, 0)
        more = len(chunks) == _CHUNKS_AT_ONCE
    return _page_of(items, start, at, more=more)


def _found(
    connection: Connection, query: Select[Any], start: _Cursor, limit: int, text: str
) -> LogPage:
    """Return lines from `start` on that hold a text, within a page's share of work."""
    wanted = text.lower()
    items: list[LogLine] = []
    at = start
    searched = 0
    more = True
    while more and searched < SEARCH_BYTES:
        chunks = connection.execute(
            query.where(LogChunk.seq >= at.seq).order_by(LogChunk.seq).limit(_CHUNKS_AT_ONCE)
        ).all()
        for chunk in chunks:
            skip = at.line if chunk.seq == at.seq else 0
            for number, (offset, line) in enumerate(_lines(chunk)[skip:], skip):
                if wanted not in plain_text(line).lower():
                    continue
                if len(items) == limit:
                    return _page_of(items, start, _Cursor(chunk.seq, number), more=True)
                items.append(_log_line(chunk, offset, line))
            at = _Cursor(chunk.seq + 1, 0)
            searched += chunk.length
        more = len(chunks) == _CHUNKS_AT_ONCE
    return _page_of(items, start, at, more=more)


def _page_of(items: list[LogLine], start: _Cursor, end: _Cursor, *, more: bool) -> LogPage:
    previous = None if start == _BEGINNING else start.encode()
    return LogPage(items, end.encode(), previous, more)


def _back(connection: Connection, query: Select[Any], count: int, end: _Cursor) -> _Cursor:
    """Return the position before the last `count` of the lines ahead of `end`."""
    before, missing = end.seq + 1, count
    while missing > 0:
        chunks = connection.execute(
            query.where(LogChunk.seq < before).order_by(LogChunk.seq.desc()).limit(_CHUNKS_AT_ONCE)
        ).all()
        for chunk in chunks:
            lines = len(_lines(chunk))
            if chunk.seq == end.seq:
                lines = min(lines, end.line)
            if lines >= missing:
                return _Cursor(chunk.seq, lines - missing)
            missing -= lines
            before = chunk.seq
        if len(chunks) < _CHUNKS_AT_ONCE:
            return _BEGINNING
    return end


def _position(connection: Connection, query: Select[Any], line: LineId) -> _Cursor:
    """Return the position before a line.

    Raises:
        LineNotFoundError: when it is not stored, or not among those that are asked for.
    """
    chunk = connection.execute(
        query.where(
            LogChunk.attempt == line.attempt,
            LogChunk.rank == line.rank,
            LogChunk.stream == line.stream,
            LogChunk.offset <= line.offset,
        )
        .order_by(LogChunk.offset.desc())
        .limit(1)
    ).first()
    if chunk is None or line.offset >= chunk.offset + chunk.length:
        raise LineNotFoundError
    starts = [chunk.offset + offset for offset, _ in _lines(chunk)]
    return _Cursor(chunk.seq, max(bisect_right(starts, line.offset) - 1, 0))


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
        superseded=chunk.superseded,
    )
