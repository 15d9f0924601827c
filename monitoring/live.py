"""The live stream of a job: rows of the database, sent to every viewer in order.

The hub holds no state that matters. One feed per watched job reads the rows after its position when
it is woken (and now and then on its own: another coordinator may have stored some), makes each into
a frame once, and sends it to all viewers. A viewer that connects with `after` first gets the rows
between there and the feed's position.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from trainhall.arrays import Floats, Ints, np
from trainhall.db.database import Database
from trainhall.db.models import Event, Job, JobProgress, LogChunk, MetricFrame
from trainhall.db.sanitize import number_or_text
from trainhall.db.views import rfc3339
from trainhall.monitoring.codec import DIGESTS, Table, decode_frames
from trainhall.monitoring.prometheus import VIEWERS_DROPPED

POLL_SECONDS = 2.0
"""Largest delay of a frame that another coordinator stored."""
REPLAY_ROWS = 20_000
"""Most rows that are replayed; a viewer that missed more must reload."""
PAGE_ROWS = 1_000
FRAME_ROWS = 2_000
"""Most points of a table that are streamed, the extremes among them: a chart looks the same."""
GATHER_SECONDS = 0.02
"""Time within which stored rows are read together."""
QUEUE_BYTES = 4 * 1024 * 1024
"""Limit of the data queued for one viewer; one that lags further behind is dropped."""

log = structlog.get_logger(__name__)


class ViewerTooSlowError(Exception):
    """A viewer that lagged too far behind; it may reconnect with its last sequence."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the stream: its sequence and the whole of it as JSON, made once for all."""

    seq: int
    text: str


@dataclass(eq=False)
class _Viewer:
    waiting: deque[Frame] = field(default_factory=deque)
    size: int = 0
    too_slow: bool = False
    has_frames: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, frames: list[Frame]) -> None:
        if self.too_slow:
            return
        self.waiting.extend(frames)
        self.size += sum(len(frame.text) for frame in frames)
        if self.size > QUEUE_BYTES:
            self.too_slow = True
            self.waiting.clear()
            VIEWERS_DROPPED.inc()
        self.has_frames.set()

    def take(self) -> list[Frame]:
        frames = list(self.waiting)
        self.waiting.clear()
        self.size = 0
        self.has_frames.clear()
        return frames


class _Feed:
    """The one reader of a job, while it has viewers."""

    def __init__(self, database: Database, job_id: str, project: str, position: int) -> None:
        self.project = project
        self.position = position
        self.viewers: set[_Viewer] = set()
        self.woken = asyncio.Event()
        self._database = database
        self._job_id = job_id
        self.task = asyncio.create_task(self._run(), name=f"feed of {job_id}")
        self.task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self.woken.wait()
            except TimeoutError:
                if not self.viewers:
                    return  # those it was opened for left before they joined
            self.woken.clear()
            try:
                while await self._read_on():
                    pass
            except DBAPIError as error:
                log.warning("live_frames_delayed", job=self._job_id, error=str(error.orig))
                await asyncio.sleep(POLL_SECONDS)
            await asyncio.sleep(GATHER_SECONDS)

    def _ended(self, _: asyncio.Task[None]) -> None:
        for viewer in self.viewers:
            viewer.has_frames.set()

    async def _read_on(self) -> bool:
        """Hand on the next frames; True when there may be more."""
        before = self.position
        page = await read_frames(self._database, self._job_id, before)
        # No await between these: a viewer that joins sees both the old or both the new.
        self.position = page.up_to
        if page.frames:
            for viewer in self.viewers:
                viewer.offer(page.frames)
        return page.up_to - before >= PAGE_ROWS


class Hub:
    """Live streams of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feeds: dict[str, _Feed] = {}
        self._opening: dict[str, asyncio.Task[_Feed]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Feeds without viewers, which may still read."""

    def wake(self, job_id: str) -> None:
        """Announce that a job's data were stored. Costs next to nothing without viewers."""
        feed = self._feeds.get(job_id)
        if feed is not None:
            feed.woken.set()

    async def follow(
        self, job_id: str, after: int, may_read: Callable[[str], bool]
    ) -> AsyncIterator[list[Frame]]:
        """Yield frames with a sequence above `after`, each once, until `close`.

        A `reset` frame says that the frames after `after` are not available: the viewer reads
        the job again and continues with the frames after the reset's sequence.

        Args:
            may_read: whether the viewer may read jobs of this project. Asked here, as all viewers
                of a job share the query for its project.

        Raises:
            ViewerTooSlowError: when the viewer lagged too far behind.
            LookupError: when there is no such job, or the viewer may not read it.
        """
        feed = await self._feed(job_id)
        if not may_read(feed.project):
            raise LookupError(_no_job(job_id))
        viewer = _Viewer()
        feed.viewers.add(viewer)
        try:
            position = after
            async for frames in self._replay(job_id, after, feed.position):
                yield frames
                position = frames[-1].seq
            while True:
                await viewer.has_frames.wait()
                frames = [frame for frame in viewer.take() if frame.seq > position]
                if viewer.too_slow:
                    raise ViewerTooSlowError(
                        "the viewer took frames too slowly; connect again with its last seq"
                    )
                if feed.task.cancelled():
                    return
                if feed.task.done():
                    raise RuntimeError(f"the feed of {job_id} ended") from feed.task.exception()
                if frames:
                    yield frames
        finally:
            feed.viewers.discard(viewer)
            if not feed.viewers and self._feeds.get(job_id) is feed:
                self._forget(job_id, feed)
                feed.task.cancel()
                self._ending.add(feed.task)
                feed.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End every feed, and wait until none reads any more."""
        feeds = [feed.task for feed in self._feeds.values()]
        self._feeds.clear()
        tasks: list[asyncio.Task[Any]] = [*feeds, *self._ending, *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, job_id: str) -> _Feed:
        """Return the job's feed; hundreds of simultaneous viewers share one query."""
        feed = self._feeds.get(job_id)
        if feed is None or feed.task.done():
            opening = self._opening.get(job_id)
            if opening is None:
                opening = self._opening[job_id] = asyncio.create_task(self._open(job_id))
            # Shielded: the viewer that came first may be the first to leave.
            feed = await asyncio.shield(opening)
        return feed

    async def _open(self, job_id: str) -> _Feed:
        try:
            project, last = await self._project_and_sequence(job_id)
            feed = self._feeds[job_id] = _Feed(self._database, job_id, project, last)
            feed.task.add_done_callback(lambda _: self._forget(job_id, feed))
            return feed
        finally:
            del self._opening[job_id]

    def _forget(self, job_id: str, feed: _Feed) -> None:
        if self._feeds.get(job_id) is feed:
            del self._feeds[job_id]

    async def _project_and_sequence(self, job_id: str) -> tuple[str, int]:
        query = (
            select(Job.project, JobProgress.stream_seq)
            .join(JobProgress, JobProgress.job_id == Job.id)
            .where(Job.id == job_id)
        )
        found = await self._database.read(lambda connection: connection.execute(query).first())
        if found is None:
            raise LookupError(_no_job(job_id))
        return found.project, found.stream_seq

    async def _replay(self, job_id: str, after: int, up_to: int) -> AsyncIterator[list[Frame]]:
        """Yield the stored frames above `after` and up to `up_to`."""
        if after > up_to:
            # The viewer may have read what the feed has still to read, or another database.
            _, last = await self._project_and_sequence(job_id)
            if after > last:
                yield [_reset(last)]
            return
        if up_to - after > REPLAY_ROWS:
            yield [_reset(up_to)]
            return
        position = after
        while position < up_to:
            page = await read_frames(self._database, job_id, position, up_to)
            if page.frames:
                yield page.frames
            position = page.up_to


def _no_job(job_id: str) -> str:
    return f"there is no job {job_id!r}"


@dataclass(frozen=True, slots=True)
class Page:
    """Frames in order; complete up to `up_to`."""

    frames: list[Frame]
    up_to: int


async def read_frames(
    database: Database, job_id: str, after: int, before_or_at: int | None = None
) -> Page:
    """Read the next frames above `after`, from one snapshot."""
    return await database.read(lambda connection: _read(connection, job_id, after, before_or_at))


def _read(connection: Connection, job_id: str, after: int, limit: int | None) -> Page:
    stored = connection.execute(
        select(JobProgress.stream_seq, JobProgress.stream_trimmed).where(
            JobProgress.job_id == job_id
        )
    ).first()
    up_to = 0 if stored is None else stored.stream_seq
    if limit is not None:
        up_to = min(up_to, limit)
    if stored is None or up_to <= after:
        return Page([], after)
    if after < stored.stream_trimmed:
        up_to = max(up_to, stored.stream_trimmed)
        return Page([_reset(up_to)], up_to)
    # No table has rows without sequences, so a span of sequences bounds what is read at once.
    up_to = min(up_to, after + PAGE_ROWS)
    frames: list[Frame] = []
    # A metric row's tables share it: the row that holds the span's end may begin within it.
    metrics = connection.execute(
        select(MetricFrame.seq, MetricFrame.tables, MetricFrame.payload, MetricFrame.superseded)
        .where(
            MetricFrame.job_id == job_id,
            MetricFrame.seq > after,
            MetricFrame.seq - MetricFrame.tables < up_to,
        )
        .order_by(MetricFrame.seq)
    )
    for seq, tables, payload, superseded in metrics:
        if not superseded:
            first = seq - tables + 1
            frames += _metric_frames(payload, first, after, up_to)
    logs = connection.execute(
        select(
            LogChunk.seq, LogChunk.attempt, LogChunk.rank, LogChunk.stream,
            LogChunk.offset, LogChunk.time, LogChunk.data.label("text"),
        ).where(LogChunk.job_id == job_id, LogChunk.seq > after, LogChunk.seq <= up_to)
    )  # fmt: skip
    for row in logs:
        text = zlib.decompress(row.text).decode("utf-8", errors="replace")
        own = row._asdict() | {"time": rfc3339(row.time), "text": text}
        frames.append(_frame(row.seq, "log", **own))
    events = connection.execute(
        select(
            Event.seq, Event.time, Event.kind, Event.code, Event.reason, Event.attempt, Event.data,
        ).where(Event.job_id == job_id, Event.seq > after, Event.seq <= up_to)
    )  # fmt: skip
    frames += map(_event_frame, events)
    frames.sort(key=lambda frame: frame.seq)
    return Page(frames, up_to)


def _metric_frames(payload: bytes, first: int, after: int, up_to: int) -> Iterator[Frame]:
    for seq, table in enumerate(decode_frames(payload), first):
        if after < seq <= up_to and (points := _points(table)):
            yield _frame(seq, "metrics", rank=table.rank, points=points)


def _points(table: Table) -> dict[str, list[list[Any]]]:
    points = {}
    for name, values in table.columns.items():
        if name in DIGESTS:
            continue
        steps, times = table.steps, table.times
        if len(values) > FRAME_ROWS:
            chosen = _downsampled(values, FRAME_ROWS)
            steps, times, values = steps[chosen], times[chosen], values[chosen]
        numbers: list[float | str] = values.tolist()
        if not np.isfinite(values).all():
            numbers = [number_or_text(float(number)) for number in values]
        points[name] = [
            [step, rfc3339(datetime.fromtimestamp(time, UTC)), number]
            for step, time, number in zip(steps.tolist(), times.tolist(), numbers, strict=True)
        ]
    return points


def _downsampled(values: Floats, limit: int) -> Ints:
    """Select at most `limit` values: of equal spans the smallest, largest and last."""
    rows = -(-len(values) // (limit // 3))
    spans = -(-len(values) // rows)
    # The last span is filled up with its last value, whose position is then cut off again.
    grid = np.append(values, np.full(spans * rows - len(values), values[-1])).reshape(spans, rows)
    starts = np.arange(spans) * rows
    positions = np.concatenate(
        [
            starts + np.where(np.isnan(grid), np.inf, grid).argmin(axis=1),
            starts + np.where(np.isnan(grid), -np.inf, grid).argmax(axis=1),
            starts + rows - 1,
        ]
    )
    return np.unique(np.minimum(positions, len(values) - 1))


def _event_frame(row: Any) -> Frame:
    if row.kind == "state":
        return _frame(
            row.seq,
            "state",
            state=row.data.get("state"),
            reason=row.reason,
            attempt=row.attempt,
            time=rfc3339(row.time),
        )
    if row.kind == "checkpoint":
        return _frame(row.seq, "checkpoint", **row.data)
    return _frame(row.seq, "event", **row._asdict() | {"time": rfc3339(row.time)})


def _reset(seq: int) -> Frame:
    return _frame(seq, "reset")


def _frame(seq: int, type_: str, /, **rest: Any) -> Frame:
    return Frame(seq, orjson.dumps({**rest, "seq": seq, "type": type_}).decode())
