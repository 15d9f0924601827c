"""Taking what the ranks wrote: each frame and each byte once, acknowledged after the commit."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from trainhall.arrays import Floats, Ints
from trainhall.db.database import Database
from trainhall.db.models import JobProgress, Series
from trainhall.monitoring.batcher import Batcher
from trainhall.monitoring.codec import DIGESTS, Table
from trainhall.monitoring.errors import UnknownAttemptError
from trainhall.monitoring.lineage import UNKNOWN, Origin
from trainhall.monitoring.prometheus import LOG_BYTES, POINTS
from trainhall.monitoring.store import (
    Item,
    Metrics,
    Output,
    Stored,
    record_first_step,
    reopen_entry,
    store,
)
from trainhall.training.link.frames import encode_frame, encode_tables

log = structlog.get_logger(__name__)

NoteLosses = Callable[[str, int, Ints, Floats], None]
"""Called with a job's id, the attempt, steps and losses."""
BATCH_BYTES = 16 * 1024 * 1024
"""About the most that one transaction stores."""
MAX_LOG_BYTES = 1024**3
LARGE_BYTES = 256 * 1024
"""A larger body is checked in a thread, so that others are not held up."""
TRIES = 3
MAX_NAMES = 1000
"""Names that a job's metrics may have, as the SDK allows each rank."""
_MAX_JOBS = 1000
"""Jobs of which the names are kept in memory; each batch of metrics asks."""


class Ingest:
    """Stores metric frames and log bytes.

    What comes while a transaction is under way shares the next one, so that many small batches cost
    one commit. Repeating a batch is harmless.

    Args:
        now: the time of day.
        wake: called with a job's id after each commit that added to its stream.
        note_losses: called after each commit with losses of a job.
        max_log_bytes: so much of a job's output is stored.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime],
        wake: Callable[[str], None],
        note_losses: NoteLosses | None = None,
        max_log_bytes: int = MAX_LOG_BYTES,
    ) -> None:
        self._database = database
        self._now = now
        self._wake = wake
        self._note_losses = note_losses
        self._max_log_bytes = max_log_bytes
        self._names = MetricNames(database)
        self._batcher = Batcher(self._store_batch, max_bytes=BATCH_BYTES)

    async def metrics(
        self, job_id: str, attempt: int, writer: str, body: bytes, origin: Origin = UNKNOWN
    ) -> int:
        """Store the frames of `body` that are new; returns the writer's newest stored sequence.

        Frames behind a gap are not stored: the answer is below their sequence, and the sender
        continues from there. Metrics with names beyond what a job may have are left out.

        Raises:
            DamagedFrameError: when the body is not a run of whole frames.
            UnknownAttemptError: when there is no such attempt.
        """
        if len(body) > LARGE_BYTES:
            item = await asyncio.to_thread(Metrics.parse, attempt, writer, body, origin)
        else:
            item = Metrics.parse(attempt, writer, body, origin)
        item = await self._names.keep(job_id, item)
        return (await self._batcher.submit((job_id, item), len(body))).acknowledged

    async def logs(
        self,
        job_id: str,
        attempt: int,
        rank: int,
        stream: str,
        offset: int,
        data: bytes,
        origin: Origin = UNKNOWN,
    ) -> int:
        """Store the bytes of an output file from `offset` on; returns the next offset to send.

        Bytes that are stored already are skipped. Bytes after a gap are not stored: the result
        is below `offset`, and the sender resumes from there. Of a job with more output than is
        stored it is `LOG_FULL`, and the sender stops.

        Raises:
            UnknownAttemptError: when there is no such attempt.
            ValueError: for a stream, rank or offset that cannot be.
        """
        if stream not in ("stdout", "stderr") or rank < 0 or offset < 0:
            raise ValueError(
                f"output is of stdout or stderr of a rank, from an offset on; not of {stream!r} of "
                f"rank {rank} from {offset}"
            )
        item = Output(attempt, rank, stream, offset, data, origin)
        return (await self._batcher.submit((job_id, item), len(data))).acknowledged

    async def _store_batch(self, batch: Sequence[tuple[str, Item]]) -> Sequence[Stored | Exception]:
        items: dict[str, list[Item]] = defaultdict(list)
        for job_id, item in batch:
            items[job_id].append(item)
        answers: Mapping[str, Sequence[Stored | Exception]]
        try:
            answers = await self._store(items)
        except DBAPIError:
            # One job's trouble is not the others', and a deadlock passes.
            answers = {job_id: await self._store_one(job_id, items[job_id]) for job_id in items}
        in_order = {job_id: iter(of_job) for job_id, of_job in answers.items()}
        return [next(in_order[job_id]) for job_id, _ in batch]

    async def _store_one(self, job_id: str, items: list[Item]) -> Sequence[Stored | Exception]:
        for _ in range(TRIES):
            try:
                return (await self._store({job_id: items}))[job_id]
            except DBAPIError as error:
                failed = error
        return [failed] * len(items)

    async def _store(
        self, items: Mapping[str, list[Item]]
    ) -> Mapping[str, Sequence[Stored | UnknownAttemptError]]:
        now = self._now()

        def work(connection: Connection) -> dict[str, list[Stored | UnknownAttemptError]]:
            # In one order, so that two coordinators do not wait for each other.
            return {
                job_id: store(connection, job_id, items[job_id], now, self._max_log_bytes)
                for job_id in sorted(items)
            }

        answers = await self._database.write(work)
        await self._record_first_steps(items, answers)
        await self._reopen_entries(items, answers, now)
        for job_id, of_job in answers.items():
            stored = [answer for answer in of_job if isinstance(answer, Stored)]
            points = sum(answer.points for answer in stored)
            log_bytes = sum(answer.log_bytes for answer in stored)
            POINTS.inc(points)
            LOG_BYTES.inc(log_bytes)
            if points + log_bytes:
                self._wake(job_id)
            if self._note_losses is not None:
                self._pass_on_losses(self._note_losses, job_id, items[job_id], of_job)
        return answers

    def _pass_on_losses(
        self,
        note: NoteLosses,
        job_id: str,
        items: Sequence[Item],
        of_job: Sequence[Stored | UnknownAttemptError],
    ) -> None:
        for item, answer in zip(items, of_job, strict=True):
            if isinstance(answer, Stored):
                for steps, losses in answer.losses:
                    note(job_id, item.attempt, steps, losses)

    async def _record_first_steps(
        self,
        items: Mapping[str, list[Item]],
        answers: Mapping[str, Sequence[Stored | UnknownAttemptError]],
    ) -> None:
        """Record first steps in a transaction of its own: locks are taken in another order."""
        first: dict[tuple[str, int], int] = {}
        for job_id, of_job in items.items():
            for item, answer in zip(of_job, answers[job_id], strict=True):
                if isinstance(answer, Stored) and answer.first_step is not None:
                    key = job_id, item.attempt
                    first[key] = min(answer.first_step, first.get(key, answer.first_step))
        if first:

            def work(connection: Connection) -> None:
                for (job_id, attempt), step in sorted(first.items()):
                    record_first_step(connection, job_id, attempt, step)

            await self._database.write(work)

    async def _reopen_entries(
        self,
        items: Mapping[str, list[Item]],
        answers: Mapping[str, Sequence[Stored | UnknownAttemptError]],
        now: datetime,
    ) -> None:
        """Let the ledger divide attempts again whose metrics came late."""
        late = {
            (job_id, item.attempt)
            for job_id, of_job in items.items()
            for item, answer in zip(of_job, answers[job_id], strict=True)
            if isinstance(answer, Stored) and answer.late
        }
        if late:

            def work(connection: Connection) -> None:
                for job_id, attempt in sorted(late):
                    reopen_entry(connection, job_id, attempt, now)

            await self._database.write(work)


class MetricNames:
    """Names of each job's metrics: a job has a bounded number of curves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, set[str]] = {}

    async def keep(self, job_id: str, item: Metrics) -> Metrics:
        """Return an item without the metrics of names beyond `MAX_NAMES`."""
        known = self._known.get(job_id)
        if known is None:
            # Another batch of the job may have been first.
            loaded = await self._load(job_id)
            known = self._known.setdefault(job_id, loaded)
            if len(self._known) > _MAX_JOBS:
                del self._known[next(iter(self._known))]
        if all(table.columns.keys() <= known for tables in item.tables for table in tables):
            return item
        beyond: str | None = None
        for tables in item.tables:
            for table in tables:
                for name in table.columns:
                    if len(known) < MAX_NAMES + len(DIGESTS):
                        known.add(name)
                    elif name not in known:
                        beyond = name
        if beyond is None:
            return item
        log.warning("metric_names_dropped", job=job_id, name=beyond, most=MAX_NAMES)
        return _only(item, known)

    async def _load(self, job_id: str) -> set[str]:
        def read(connection: Connection) -> set[str]:
            stored = connection.scalars(
                select(Series.name).where(Series.job_id == job_id).distinct()
            )
            newest = connection.scalar(
                select(JobProgress.metrics).where(JobProgress.job_id == job_id)
            )
            return {*stored, *(newest or ())}

        return {*DIGESTS, *await self._database.read(read)}


def _only(item: Metrics, names: set[str]) -> Metrics:
    """Return an item with the same frames, and in them these names alone."""
    body = b"".join(
        encode_frame(header.sequence, encode_tables([_cut(t, names).as_lists() for t in tables]))
        for header, tables in zip(item.headers, item.tables, strict=True)
    )
    return Metrics.parse(item.attempt, item.writer, body, item.origin)


def _cut(table: Table, names: set[str]) -> Table:
    columns = {name: values for name, values in table.columns.items() if name in names}
    return Table(table.rank, table.steps, table.times, columns)
