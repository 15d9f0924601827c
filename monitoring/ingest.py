"""Taking what the ranks wrote: each frame and each byte once, acknowledged after the commit."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from trainhall.db.database import Database
from trainhall.monitoring.batcher import Batcher
from trainhall.monitoring.codec import Floats, Ints
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

NoteLosses = Callable[[str, int, Ints, Floats], None]
"""Called with a job's id, the attempt, steps and losses."""
BATCH_BYTES = 16 * 1024 * 1024
"""About the most that one transaction stores."""
LARGE_BYTES = 256 * 1024
"""A larger body is checked in a thread, so that others are not held up."""
TRIES = 3


class Ingest:
    """Stores metric frames and log bytes.

    What comes while a transaction is under way shares the next one, so that many small batches cost
    one commit. Repeating a batch is harmless.

    Args:
        now: the time of day.
        wake: called with a job's id after each commit that added to its stream.
        note_losses: called after each commit with losses of a job.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime],
        wake: Callable[[str], None],
        note_losses: NoteLosses | None = None,
    ) -> None:
        self._database = database
        self._now = now
        self._wake = wake
        self._note_losses = note_losses
        self._batcher = Batcher(self._store_batch, max_bytes=BATCH_BYTES)

    async def metrics(
        self, job_id: str, attempt: int, writer: str, body: bytes, origin: Origin = UNKNOWN
    ) -> int:
        """Store the frames of `body` that are new; returns the writer's newest stored sequence.

        Frames behind a gap are not stored: the answer is below their sequence, and the sender
        continues from there.

        Raises:
            DamagedFrameError: when the body is not a run of whole frames.
            UnknownAttemptError: when there is no such attempt.
        """
        if len(body) > LARGE_BYTES:
            item = await asyncio.to_thread(Metrics.parse, attempt, writer, body, origin)
        else:
            item = Metrics.parse(attempt, writer, body, origin)
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
        is below `offset`, and the sender resumes from there.

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
                job_id: store(connection, job_id, items[job_id], now) for job_id in sorted(items)
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
