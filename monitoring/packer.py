"""Upkeep: the raw tail of metrics moves into packed chunks, and what was packed is forgotten."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, or_, select, tuple_, update

from trainhall.db.database import Database
from trainhall.db.models import (
    Attempt,
    Job,
    JobProgress,
    LogChunk,
    LogStream,
    MetricChunk,
    MetricFrame,
    Series,
)
from trainhall.monitoring.chunks import CHUNK, LEVELS, STRIDE, Run, joined
from trainhall.monitoring.codec import decode_frames
from trainhall.monitoring.lines import log_chunks
from trainhall.monitoring.store import upsert

SeriesKey = tuple[int, bool, int, str]
"""Attempt, superseded, rank (-1: job-wide), name."""

PACK_FRAMES = 64
"""So many unpacked batches of a job are worth a packing."""
PACK_BYTES = 1024 * 1024
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes per transaction: no one else writes meanwhile."""
BATCH_ROWS = 4096
KEEP_SEQUENCES = 20_000
"""Length of the stream that a reconnecting viewer may have missed before it has to reload."""
KEEP_BYTES = 16 * 1024 * 1024
"""The most packed frames that are kept for such viewers."""
KEEP_ENDED = timedelta(hours=1)
"""Time for which packed frames of a job that has ended are kept for such viewers."""
ENDED_AT_ONCE = 50
"""Most jobs with frames that one call of `trim_ended` examines."""
IDLE_LINE = timedelta(seconds=1)
"""An unfinished line that did not grow for so long is shown as it is: it may be a prompt."""
_KEYS_AT_ONCE = 500

_MUCH_TO_PACK = (
    select(MetricFrame.job_id)
    .join(Job, Job.id == MetricFrame.job_id)
    .where(MetricFrame.packed.is_(False))
    .group_by(MetricFrame.job_id, Job.finished_at)
    .having(
        or_(
            func.count() >= bindparam("frames"),
            func.sum(func.length(MetricFrame.payload)) >= PACK_BYTES,
            Job.finished_at.is_not(None),
        )
    )
)


@dataclass
class _Open:
    """A series as it stands: its row, and the last chunk of each level where it is not full."""

    id: int
    points: int
    last_step: int
    ordered: bool
    runs: dict[int, Run]


@dataclass
class Packer:
    """One round at a time per database is enough; two coordinators do each other no harm.

    Args:
        now: the time of day.
        wake: called with a job's id after a commit that added to its stream.
    """

    database: Database
    now: Callable[[], datetime]
    wake: Callable[[str], None] = lambda _: None
    pack_frames: int = PACK_FRAMES
    keep_sequences: int = KEEP_SEQUENCES
    _examined: str = field(default="", init=False)
    """Id of the last job that `trim_ended` examined: the next call continues behind it."""

    async def pack_once(self) -> int:
        """Run one round over all jobs; return the number of batches that were packed."""
        packed = 0
        for job_id in await self.database.read(self._jobs_with_much_to_pack):
            while batch := await self._pack_batch(job_id):
                packed += batch
            await self._trim(job_id)
        await self._show_idle_lines()
        return packed

    def _jobs_with_much_to_pack(self, connection: Connection) -> list[str]:
        return list(connection.scalars(_MUCH_TO_PACK, {"frames": self.pack_frames}))

    async def _pack_batch(self, job_id: str) -> int:
        def read(connection: Connection) -> tuple[list[int], dict[SeriesKey, Run]]:
            frames = _next_frames(connection, job_id)
            return [frame.seq for frame in frames], _points_by_series(frames)

        sequences, points = await self.database.read(read)
        if not sequences:
            return 0

        def write(connection: Connection) -> int:
            taken = connection.execute(
                update(MetricFrame)
                .where(
                    MetricFrame.job_id == job_id,
                    MetricFrame.seq.between(sequences[0], sequences[-1]),
                    MetricFrame.packed.is_(False),
                )
                .values(packed=True)
            ).rowcount
            if taken != len(sequences):
                connection.rollback()  # another coordinator packs them, or has
                return 0
            _append(connection, job_id, points)
            return taken

        return await self.database.write(write)

    async def _trim(self, job_id: str) -> None:
        """Delete packed frames that no viewer needs any more."""

        up_to = await self.database.read(
            lambda connection: _trimmable(connection, job_id, self.keep_sequences)
        )
        if up_to is not None:
            await self._delete(job_id, up_to)

    async def trim_ended(self) -> None:
        """Delete the packed frames of jobs that ended long ago: a late viewer reloads."""
        for job_id in await self.database.read(self._ended_jobs):
            oldest = functools.partial(_oldest_packed, job_id=job_id)
            while (up_to := await self.database.read(oldest)) is not None:
                await self._delete(job_id, up_to)

    def _ended_jobs(self, connection: Connection) -> list[str]:
        """Return those that ended long ago of the next jobs with frames."""
        found = []
        # One by one: an index leads to each, and a DISTINCT would read all frames of all jobs.
        following = select(func.min(MetricFrame.job_id)).where(
            MetricFrame.job_id > bindparam("last")
        )
        for _ in range(ENDED_AT_ONCE):
            job_id = connection.scalar(following, {"last": self._examined})
            self._examined = job_id or ""
            if job_id is None:
                break
            found.append(job_id)
        ended = Job.finished_at < self.now() - KEEP_ENDED
        return list(connection.scalars(select(Job.id).where(Job.id.in_(found), ended)))

    async def _delete(self, job_id: str, up_to: int) -> None:
        """Delete packed frames of a job; its viewers that have not read them reload."""

        def write(connection: Connection) -> None:
            connection.execute(
                update(JobProgress)
                .where(JobProgress.job_id == job_id, JobProgress.stream_trimmed < up_to)
                .values(stream_trimmed=up_to)
            )
            connection.execute(
                delete(MetricFrame).where(
                    MetricFrame.job_id == job_id,
                    MetricFrame.packed.is_(True),
                    MetricFrame.seq <= up_to,
                )
            )

        await self.database.write(write)

    async def _show_idle_lines(self) -> None:
        before = self.now() - IDLE_LINE

        def read(connection: Connection) -> set[str]:
            # A DISTINCT would have SQLite read all streams in the order of their jobs.
            query = select(LogStream.job_id).where(LogStream.carry_at < before)
            return set(connection.scalars(query))

        for job_id in sorted(await self.database.read(read)):
            show = functools.partial(self._show_lines, job_id=job_id, before=before)
            if await self.database.write(show):
                self.wake(job_id)

    def _show_lines(self, connection: Connection, job_id: str, before: datetime) -> bool:
        # The lock keeps ingestion from finishing a line while it is shown unfinished.
        seq = connection.scalar(
            select(JobProgress.stream_seq).where(JobProgress.job_id == job_id).with_for_update()
        )
        if seq is None:
            return False
        rows = list(
            connection.execute(
                select(LogStream.__table__, Attempt.revoked)
                .join(
                    Attempt,
                    (Attempt.job_id == LogStream.job_id) & (Attempt.number == LogStream.attempt),
                )
                .where(LogStream.job_id == job_id, LogStream.carry_at < before)
            ).mappings()
        )
        chunks: list[dict[str, Any]] = []
        for row in rows:
            start = row["length"] - len(row["carry"])
            chunks += log_chunks(
                dict(row),
                seq + len(chunks),
                start,
                row["carry"],
                self.now(),
                superseded=row["revoked"],
            )
        if not chunks:
            return False
        connection.execute(LogChunk.__table__.insert(), chunks)  # type: ignore[attr-defined]
        connection.execute(
            update(LogStream)
            .where(LogStream.job_id == job_id, LogStream.carry_at < before)
            .values(carry=b"", carry_at=None)
        )
        connection.execute(
            update(JobProgress)
            .where(JobProgress.job_id == job_id)
            .values(stream_seq=seq + len(chunks))
        )
        return True


def _oldest_packed(connection: Connection, job_id: str) -> int | None:
    """Return the sequence up to which packed frames can be deleted in one transaction."""
    oldest = (
        select(MetricFrame.seq)
        .where(MetricFrame.job_id == job_id, MetricFrame.packed.is_(True))
        .order_by(MetricFrame.seq)
        .limit(BATCH_ROWS)
        .subquery()
    )
    newest: int | None = connection.scalar(select(func.max(oldest.c.seq)))
    return newest


def _next_frames(connection: Connection, job_id: str) -> list[Any]:
    raw = (MetricFrame.job_id == job_id, MetricFrame.packed.is_(False))
    sizes = connection.execute(
        select(MetricFrame.seq, func.length(MetricFrame.payload))
        .where(*raw)
        .order_by(MetricFrame.seq)
        .limit(BATCH_ROWS)
    )
    last, total = None, 0
    for seq, size in sizes:
        total += size
        if last is not None and total > BATCH_BYTES:
            break
        last = seq
    if last is None:
        return []
    return list(
        connection.execute(
            select(
                MetricFrame.seq, MetricFrame.attempt, MetricFrame.superseded, MetricFrame.payload
            )
            .where(*raw, MetricFrame.seq <= last)
            .order_by(MetricFrame.seq)
        )
    )


def _points_by_series(frames: Iterable[Any]) -> dict[SeriesKey, Run]:
    runs: dict[SeriesKey, list[Run]] = defaultdict(list)
    for frame in frames:
        for table in decode_frames(frame.payload):
            if len(table.steps):
                rank = -1 if table.rank is None else table.rank
                for name, values in table.columns.items():
                    run = Run.of_points(table.steps, table.times, values)
                    runs[frame.attempt, frame.superseded, rank, name].append(run)
    return {key: joined(found) for key, found in runs.items()}


def _append(connection: Connection, job_id: str, points: dict[SeriesKey, Run]) -> None:
    """Add points to series, and what they complete to the rollups above."""
    series = _open_series(connection, job_id, list(points))
    chunks: list[dict[str, Any]] = []
    changes = []
    for key, run in points.items():
        one = series[key]
        chunks += _grown_chunks(one, run)
        ordered = one.ordered and run.ordered()
        if one.points:
            ordered = ordered and int(run.steps[0]) > one.last_step
        changes.append(
            {
                "id": one.id,
                "job_id": job_id,
                **dict(zip(("attempt", "superseded", "rank", "name"), key, strict=True)),
                "points": one.points + len(run),
                "last_step": max(one.last_step, int(run.steps.max())),
                "ordered": ordered,
            }
        )
    if chunks:
        keys = ("series_id", "level", "index")
        connection.execute(upsert(connection, MetricChunk, keys), chunks)
        connection.execute(upsert(connection, Series, ("id",)), changes)


def _open_series(
    connection: Connection, job_id: str, keys: list[SeriesKey]
) -> dict[SeriesKey, _Open]:
    query = select(Series.__table__).where(Series.job_id == job_id)

    def load() -> dict[SeriesKey, _Open]:
        return {
            (r.attempt, r.superseded, r.rank, r.name): _Open(
                r.id, r.points, r.last_step, r.ordered, {}
            )
            for r in connection.execute(query)
        }

    found = load()
    missing = [key for key in keys if key not in found]
    if missing:
        connection.execute(
            Series.__table__.insert(),  # type: ignore[attr-defined]
            [
                {
                    "job_id": job_id,
                    **dict(zip(("attempt", "superseded", "rank", "name"), key, strict=True)),
                    "points": 0,
                    "last_step": 0,
                    "ordered": True,
                }
                for key in missing
            ],
        )
        found = load()
    by_id = {found[key].id: found[key] for key in keys}
    open_chunks = [
        (one.id, level, (one.points >> level) // CHUNK)
        for one in by_id.values()
        for level in (0, *LEVELS)
        if (one.points >> level) % CHUNK
    ]
    for at in range(0, len(open_chunks), _KEYS_AT_ONCE):
        rows = connection.execute(
            select(
                MetricChunk.series_id, MetricChunk.level, MetricChunk.count, MetricChunk.data
            ).where(
                tuple_(MetricChunk.series_id, MetricChunk.level, MetricChunk.index).in_(
                    open_chunks[at : at + _KEYS_AT_ONCE]
                )
            )
        )
        for series_id, level, count, data in rows:
            by_id[series_id].runs[level] = Run.unpack(level, count, data)
    return found


def _grown_chunks(series: _Open, added: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows, on every level, that points behind the series' end change or add."""
    for level in (0, *LEVELS):
        if not len(added):
            return
        before = series.points >> level
        base = before // CHUNK * CHUNK
        grown = joined([series.runs.get(level, Run.empty()), added])
        for start in range(0, len(grown), CHUNK):
            part = grown.at(slice(start, start + CHUNK))
            yield {
                "series_id": series.id,
                "level": level,
                "index": (base + start) // CHUNK,
                "last_step": int(part.steps[-1]),
                "count": len(part),
                "data": part.pack(level),
            }
        above = (before >> STRIDE << STRIDE) - base
        complete = (base + len(grown)) >> STRIDE << STRIDE
        added = grown.at(slice(above, complete - base)).grouped(1 << (level + STRIDE))


def _trimmable(connection: Connection, job_id: str, keep: int) -> int | None:
    """Return the sequence up to which packed frames, too old or too many, may go."""
    newest = connection.scalar(select(JobProgress.stream_seq).where(JobProgress.job_id == job_id))
    rows = connection.execute(
        select(MetricFrame.seq, func.length(MetricFrame.payload))
        .where(MetricFrame.job_id == job_id, MetricFrame.packed.is_(True))
        .order_by(MetricFrame.seq.desc())
    )
    total = 0
    for seq, size in rows:
        total += size
        if seq <= (newest or 0) - keep or total > KEEP_BYTES:
            return int(seq)
    return None
