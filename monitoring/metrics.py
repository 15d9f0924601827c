"""Reading a job's curves: as many entries as asked for, from rollups, chunks and the raw tail."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from trainhall.arrays import np
from trainhall.db.database import Database
from trainhall.db.models import Attempt, MetricChunk, MetricFrame, Series
from trainhall.monitoring.chunks import CHUNK, LEVELS, STRIDE, Run, joined
from trainhall.monitoring.codec import DIGESTS, decode_frames
from trainhall.monitoring.lineage import RUN_ATTEMPT

_EVER = 2**62


@dataclass(frozen=True, slots=True)
class SeriesData:
    """One curve over all attempts. In each entry step, time (seconds since the epoch) and value are
    those of its last point, low and high the extremes of all its points."""

    name: str
    rank: int | None
    """None: job-wide."""
    run: Run


@dataclass(frozen=True, slots=True)
class _Part:
    """The steps of one attempt that count, as far as they were asked for."""

    first: int
    last: int

    def of(self, run: Run) -> Run:
        """Return the points of a run that lie in this part."""
        inside = (run.steps >= self.first) & (run.steps <= self.last)
        return run if inside.all() else run.at(inside)


CurveKey = tuple[int, str]
"""Rank (-1: job-wide) and name."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One attempt's piece of a curve: a span of packed points, then points in memory."""

    series: Any
    start: int
    end: int
    points: Run

    def __len__(self) -> int:
        return self.end - self.start + len(self.points)


async def read_metrics(
    database: Database,
    job_id: str,
    names: list[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = 1000,
) -> list[SeriesData]:
    """Return a job's curves, job-wide ones first, each with at most `max_points` entries.

    Without names all curves but those of digests (`codec.DIGESTS`).
    A curve that has no more points than that comes point by point. Superseded points are left
    out. Where attempts overlap, the newest that took the step wins; within an attempt, the point
    that came last. An unknown job has no curves.

    Raises:
        ValueError: when `max_points` is below 1.
    """
    if max_points < 1:
        raise ValueError(f"max_points must be at least 1, not {max_points}")
    first, last = from_step or 0, _EVER if to_step is None else to_step

    return await database.read(
        lambda connection: list(_read(connection, job_id, names, first, last, max_points))
    )


@dataclass(frozen=True, slots=True)
class LastPoint:
    """Newest point of a job-wide curve: the one at its highest step."""

    step: int
    time: float
    """Seconds since the epoch."""
    value: float


def read_last(connection: Connection, job_id: str) -> dict[str, LastPoint]:
    """Return the newest point of each job-wide curve, by name."""
    curves = _read(connection, job_id, None, 0, _EVER, max_points=1)
    return {
        curve.name: LastPoint(
            int(curve.run.steps[-1]), float(curve.run.times[-1]), float(curve.run.last[-1])
        )
        for curve in curves
        if curve.rank is None
    }


def _read(
    connection: Connection,
    job_id: str,
    names: list[str] | None,
    first: int,
    last: int,
    max_points: int,
) -> Iterator[SeriesData]:
    parts = _parts(connection, job_id, first, last)
    packed = _packed_series(connection, job_id, names)
    tail = _raw_tail(connection, job_id, names, parts)
    curves: dict[CurveKey, list[_Piece]] = defaultdict(list)
    for attempt, key in sorted(packed.keys() | tail.keys()):
        part = parts.get(attempt)
        if part is not None and part.first <= part.last:
            series, points = packed.get((attempt, key)), tail.get((attempt, key), Run.empty())
            curves[key].append(_piece(connection, series, points, part))
    for (rank, name), pieces in sorted(curves.items()):
        total = sum(map(len, pieces))
        if total:
            size = _group_size(total, max_points)
            level = max(n for n in (0, *LEVELS) if 1 << n <= size)
            run = joined([run for piece in pieces for run in _entries(connection, piece, level)])
            yield SeriesData(name, None if rank < 0 else rank, run.grouped(size))


def _parts(connection: Connection, job_id: str, first: int, last: int) -> dict[int, _Part]:
    """Return, by attempt, the steps that no newer attempt took again."""
    rows = connection.execute(
        select(Attempt.number, Attempt.first_step)
        .where(Attempt.job_id == job_id)
        .order_by(Attempt.number.desc())
    )
    # A run has no attempts; its points count, all of them.
    parts: dict[int, _Part] = {RUN_ATTEMPT: _Part(first, last)}
    for number, first_step in rows:
        parts[number] = _Part(first, last)
        if first_step is not None:
            last = min(last, first_step - 1)
    return parts


def _packed_series(
    connection: Connection, job_id: str, names: list[str] | None
) -> dict[tuple[int, CurveKey], Any]:
    query = select(Series.__table__).where(Series.job_id == job_id, Series.superseded.is_(False))
    if names is not None:
        query = query.where(Series.name.in_(names))
    else:
        query = query.where(Series.name.not_in(DIGESTS))
    return {(row.attempt, (row.rank, row.name)): row for row in connection.execute(query)}


def _raw_tail(
    connection: Connection, job_id: str, names: list[str] | None, parts: dict[int, _Part]
) -> dict[tuple[int, CurveKey], Run]:
    rows = connection.execute(
        select(MetricFrame.attempt, MetricFrame.payload)
        .where(
            MetricFrame.job_id == job_id,
            MetricFrame.packed.is_(False),
            MetricFrame.superseded.is_(False),
        )
        .order_by(MetricFrame.seq)
    )
    found: dict[tuple[int, CurveKey], list[Run]] = defaultdict(list)
    for attempt, payload in rows:
        if attempt not in parts:
            continue
        for table in decode_frames(payload):
            rank = -1 if table.rank is None else table.rank
            for name, values in table.columns.items():
                if name in names if names is not None else name not in DIGESTS:
                    run = Run.of_points(table.steps, table.times, values)
                    found[attempt, (rank, name)].append(run)
    return {key: joined(runs) for key, runs in found.items()}


def _piece(connection: Connection, series: Any, tail: Run, part: _Part) -> _Piece:
    if series is None:
        return _Piece(None, 0, 0, part.of(tail).in_order())
    in_order = series.ordered and tail.ordered()
    if in_order and (not len(tail) or tail.steps[0] > series.last_step):
        start, end = _span(connection, series, part)
        return _Piece(series, start, end, part.of(tail))
    # Steps went back, as a script's may. Its points are put in order here, all of them.
    points = joined([*_chunks(connection, series.id, 0, 0, series.points), tail])
    return _Piece(None, 0, 0, part.of(points).in_order())


def _span(connection: Connection, series: Any, part: _Part) -> tuple[int, int]:
    """Return where the packed points of a part lie, from the first to behind the last."""
    start = _position(connection, series, part.first)
    end = series.points
    if part.last < series.last_step:
        end = _position(connection, series, part.last + 1)
    return start, max(start, end)


def _position(connection: Connection, series: Any, step: int) -> int:
    """Return the position of the first packed point at or behind a step."""
    if step <= 0:
        return 0
    row = connection.execute(
        select(MetricChunk.index, MetricChunk.count, MetricChunk.data)
        .where(
            MetricChunk.series_id == series.id,
            MetricChunk.level == 0,
            MetricChunk.last_step >= step,
        )
        .order_by(MetricChunk.last_step)
        .limit(1)
    ).first()
    if row is None:
        return int(series.points)
    index, count, data = row
    return int(index * CHUNK + np.searchsorted(Run.unpack(0, count, data).steps, step))


def _group_size(points: int, max_points: int) -> int:
    """Return points per entry: a power of two, so that growing curves keep their groups."""
    size = 1
    while -(-points // size) > max_points:
        size *= 2
    return size


def _entries(connection: Connection, piece: _Piece, level: int) -> Iterator[Run]:
    """Yield a piece in entries of at most 2**level points, never beyond its end."""
    if piece.end > piece.start:
        yield from _rolled_up(connection, piece.series.id, level, piece.start, piece.end)
    yield piece.points


def _rolled_up(
    connection: Connection, series_id: int, level: int, start: int, end: int
) -> Iterator[Run]:
    """Yield groups of 2**level points where they lie inside, and smaller ones at both ends."""
    if start >= end:
        return
    first, behind = -(-start >> level), end >> level
    if level and first >= behind:
        yield from _rolled_up(connection, series_id, level - STRIDE, start, end)
        return
    if level:
        yield from _rolled_up(connection, series_id, level - STRIDE, start, first << level)
    yield from _chunks(connection, series_id, level, first, behind)
    if level:
        yield from _rolled_up(connection, series_id, level - STRIDE, behind << level, end)


def _chunks(
    connection: Connection, series_id: int, level: int, start: int, end: int
) -> Iterator[Run]:
    """Yield the entries of a level from position `start` to before `end`."""
    rows = connection.execute(
        select(MetricChunk.index, MetricChunk.count, MetricChunk.data)
        .where(
            MetricChunk.series_id == series_id,
            MetricChunk.level == level,
            MetricChunk.index.between(start // CHUNK, (end - 1) // CHUNK),
        )
        .order_by(MetricChunk.index)
    )
    for index, count, data in rows:
        base = index * CHUNK
        run = Run.unpack(level, count, data)
        yield run.at(slice(max(start - base, 0), min(end - base, count)))
