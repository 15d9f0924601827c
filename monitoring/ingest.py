"""Taking what the ranks wrote: each frame and each byte once, acknowledged after the commit."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from trainhall.db.database import Database
from trainhall.monitoring.errors import UnknownAttempt
from trainhall.monitoring.lineage import UNKNOWN, Origin
from trainhall.monitoring.prometheus import LOG_BYTES, POINTS
from trainhall.monitoring.store import Item, Metrics, Output, Stored, note_first_step, store

BATCH_BYTES = 16 * 1024 * 1024
"""About the most that one transaction stores."""
LARGE_BYTES = 256 * 1024
"""A larger body is checked in a thread, so that others are not held up."""
TRIES = 3


@dataclass
class _Waiting:
    """An item on its way into the database."""

    job_id: str
    item: Item
    size: int
    answer: "asyncio.Future[Stored]"


class Ingest:
    """Stores metric frames and log bytes.

    What comes while a transaction is under way shares the next one, so that many small batches cost
    one commit. Repeating a batch is harmless.

    Args:
        now: the time of day.
        wake: called with a job's id after each commit that added to its stream.
    """

    def __init__(
        self, database: Database, now: Callable[[], datetime], wake: Callable[[str], None]
    ) -> None:
        self._database = database
        self._now = now
        self._wake = wake
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def metrics(
        self, job_id: str, attempt: int, writer: str, body: bytes, origin: Origin = UNKNOWN
    ) -> int:
        """Store the frames of `body` that are new; returns the writer's newest stored sequence.

        Frames behind a gap are not stored: the answer is below their sequence, and the sender goes
        on from there.

        Raises:
            DamagedFrame: when the body is not a run of whole frames.
            UnknownAttempt: when there is no such attempt.
        """
        if len(body) > LARGE_BYTES:
            item = await asyncio.to_thread(Metrics.parse, attempt, writer, body, origin)
        else:
            item = Metrics.parse(attempt, writer, body, origin)
        return (await self._stored(job_id, item, len(body))).acknowledged

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

        Bytes that are stored already are passed over. Bytes behind a gap are not stored: the answer
        is below `offset`, and the sender goes on from there.

        Raises:
            UnknownAttempt: when there is no such attempt.
            ValueError: for a stream, rank or offset that cannot be.
        """
        if stream not in ("stdout", "stderr") or rank < 0 or offset < 0:
            raise ValueError(
                f"output is of stdout or stderr of a rank, from an offset on; not of {stream!r} of "
                f"rank {rank} from {offset}"
            )
        item = Output(attempt, rank, stream, offset, data, origin)
        return (await self._stored(job_id, item, len(data))).acknowledged

    async def _stored(self, job_id: str, item: Item, size: int) -> Stored:
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(job_id, item, size, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_waiting(), name="ingest")
        return await answer

    async def _store_waiting(self) -> None:
        while self._waiting:
            batch: dict[str, list[_Waiting]] = defaultdict(list)
            room = BATCH_BYTES
            while self._waiting and room > 0:
                waiting = self._waiting.popleft()
                if not waiting.answer.done():  # whoever sent it may have left
                    batch[waiting.job_id].append(waiting)
                    room -= waiting.size
            if not batch:
                continue
            try:
                await self._store(batch)
            except DBAPIError:
                # One job's trouble is not the others', and a deadlock with somebody passes.
                for job_id, waiting_of_job in batch.items():
                    await self._store_one(job_id, waiting_of_job)
            except BaseException as error:
                _fail([w for group in batch.values() for w in group], error)
                raise

    async def _store_one(self, job_id: str, waiting: list[_Waiting]) -> None:
        for left in reversed(range(TRIES)):
            try:
                await self._store({job_id: waiting})
                return
            except DBAPIError as error:
                if not left:
                    _fail(waiting, error)

    async def _store(self, batch: dict[str, list[_Waiting]]) -> None:
        now = self._now()

        def work(connection: Connection) -> dict[str, list[Stored | UnknownAttempt]]:
            # In one order, so that two coordinators do not wait for each other.
            return {
                job_id: store(connection, job_id, [w.item for w in batch[job_id]], now)
                for job_id in sorted(batch)
            }

        answers = await self._database.write(work)
        await self._note_first_steps(batch, answers)
        for job_id, waiting in batch.items():
            added = 0
            for one, answer in zip(waiting, answers[job_id], strict=True):
                if isinstance(answer, UnknownAttempt):
                    _refuse(one, answer)
                    continue
                POINTS.inc(answer.points)
                LOG_BYTES.inc(answer.log_bytes)
                added += answer.points + answer.log_bytes
                if not one.answer.done():
                    one.answer.set_result(answer)
            if added:
                self._wake(job_id)

    async def _note_first_steps(
        self,
        batch: dict[str, list[_Waiting]],
        answers: dict[str, list[Stored | UnknownAttempt]],
    ) -> None:
        """In a transaction of its own: it locks attempts, which others do before the progress."""
        first: dict[tuple[str, int], int] = {}
        for job_id, waiting in batch.items():
            for one, answer in zip(waiting, answers[job_id], strict=True):
                if isinstance(answer, Stored) and answer.first_step is not None:
                    key = job_id, one.item.attempt
                    first[key] = min(answer.first_step, first.get(key, answer.first_step))
        if first:

            def work(connection: Connection) -> None:
                for (job_id, attempt), step in sorted(first.items()):
                    note_first_step(connection, job_id, attempt, step)

            await self._database.write(work)


def _refuse(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _fail(waiting: list[_Waiting], error: BaseException) -> None:
    for one in waiting:
        _refuse(one, error)
