"""Outputs on their way in: contents first, then, in one transaction, the rows that name them.

An agent may be killed, or this coordinator, between any two of these: contents that no row names
are removed later, and a row never names a content that is not here. What was acknowledged stays.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import (
    InvalidValueError,
    NotFoundError,
    RevokedError,
    StorageFullError,
    TooLargeError,
)
from trainhall.cluster.lifecycle.reasons import EventCode, job_label
from trainhall.cluster.outputs.changes import OutputChanges
from trainhall.cluster.outputs.limits import OutputLimits
from trainhall.cluster.outputs.store import OutputStore
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.output_names import OutputNameError, path_of
from trainhall.cluster.wire.outputs import (
    Commit,
    Committed,
    Content,
    Offer,
    Received,
    Skipped,
    Stored,
    StoredFile,
    Taken,
)
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Event, Job
from trainhall.db.outputs import OutputFile

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 3600.0
MAX_SKIPPED_EVENTS = 100
"""Events of an attempt about files that are not stored; a further one says that there are more."""


class OutputUploads(Service):
    def __init__(self, context: ServiceContext, store: OutputStore) -> None:
        super().__init__(context)
        self._store = store
        self._committing: dict[str, asyncio.Lock] = {}
        self._reported_full: set[tuple[str, int]] = set()
        self._swept_at = float("-inf")

    async def stored(self, job_id: str, attempt: int, rank: int) -> Stored:
        """Return the files that a host of an attempt, whose lowest rank this is, is to see.

        Raises:
            NotFoundError, RevokedError
        """
        async with self._db.session() as session:
            await self._check_token_in(session, job_id, attempt)
            limits = await self._limits(session, job_id)
            rows = await session.scalars(
                select(OutputFile).where(OutputFile.job_id == job_id).order_by(OutputFile.rank)
            )
            found = list(rows)
        files: dict[str, OutputFile] = {}
        for row in found:
            if row.path not in files or row.rank == rank:
                files[row.path] = row
        return Stored(
            files=[
                StoredFile(path=r.path, size=r.size, sha256=r.sha256, modified_at=r.modified_at,
                           rank=r.rank)
                for r in files.values()
            ],
            max_file_bytes=limits.file_bytes,
            max_bytes=limits.job_bytes,
            used=sum(row.size for row in found),
        )  # fmt: skip

    async def received(self, job_id: str, attempt: int, offer: Offer) -> Received:
        """Return how much of each content is here."""
        await self._check_token(job_id, attempt)
        hashes = [each.sha256 for each in offer.contents]
        return Received(offsets=await self._store.received(job_id, hashes))

    async def receive(
        self,
        job_id: str,
        attempt: int,
        sha256: str,
        chunks: AsyncIterator[bytes],
        *,
        size: int,
        offset: int = 0,
    ) -> None:
        """Take the rest of a content from `offset` on.

        Raises:
            TooLargeError: the content is beyond the limit for one file.
            NotFoundError, RevokedError, ConflictError, DamagedError, StorageFullError
        """
        async with self._db.session() as session:
            limits = await self._limits(session, job_id)
        await self._check_token(job_id, attempt)
        if size > limits.file_bytes:
            raise TooLargeError(limits.file_bytes)
        if offset > size:
            raise InvalidValueError("offset", offset, f"is beyond the size, {size}")
        try:
            await self._store.put(job_id, sha256, chunks, size=size, offset=offset)
        except StorageFullError:
            await self._record_full(job_id, attempt)
            raise

    async def receive_small(
        self, job_id: str, attempt: int, contents: Sequence[tuple[Content, bytes]]
    ) -> Taken:
        """Take whole contents. Each is taken or left on its own, and repeating it is harmless.

        Raises:
            NotFoundError, RevokedError, StorageFullError
        """
        async with self._db.session() as session:
            await self._check_token_in(session, job_id, attempt)
            limits = await self._limits(session, job_id)
        allowed = [(c.sha256, data) for c, data in contents if c.size <= limits.file_bytes]
        try:
            stored = iter(await self._store.put_small(job_id, allowed))
        except StorageFullError:
            await self._record_full(job_id, attempt)
            raise
        return Taken(
            statuses=[
                413 if content.size > limits.file_bytes else 204 if next(stored) else 422
                for content, _ in contents
            ]
        )

    async def commit(self, job_id: str, attempt: int, changes: Commit) -> Committed:
        """Give names to contents that came, and take them from files that are gone.

        Repeating it is harmless. Files whose contents are not here, and those beyond a limit, are
        left out, and named in the reply.

        Raises:
            InvalidValueError: a name is none.
            NotFoundError, RevokedError
        """
        for name in (*(file.path for file in changes.files), *changes.removed):
            try:
                path_of(name)
            except OutputNameError as error:
                raise InvalidValueError("path", name[:160], str(error)) from None
        lock = self._committing.setdefault(job_id, asyncio.Lock())
        try:
            async with lock:
                return await self._commit(job_id, attempt, changes)
        finally:
            if not lock.locked():
                self._committing.pop(job_id, None)

    async def _commit(self, job_id: str, attempt: int, changes: Commit) -> Committed:
        hashes = {file.sha256 for file in changes.files}
        missing = set(await self._store.missing(job_id, sorted(hashes)))
        files = [file for file in changes.files if file.sha256 not in missing]
        async with self._db.transaction() as session:
            found = await self._check_token_in(session, job_id, attempt)
            change = OutputChanges(session, found, changes.rank)
            limits = await self._limits(session, job_id)
            refused = await change.store(files, limits, self._clock.now())
            await change.remove(changes.removed)
            if change.shared:
                await self._record_shared(session, job_id, attempt, change.shared[0])
            skipped = [*changes.skipped, *refused]
            if skipped:
                await self._record_skipped(session, job_id, attempt, skipped, limits)
            unnamed = await change.unnamed()
        await self._store.remove(job_id, unnamed)
        if change.shared or skipped:
            self._notifier.notify_viewers(job_id)
        return Committed(missing=sorted(missing), refused=refused)

    async def sweep(self) -> None:
        """Remove contents that no row names, and what was not continued, now and then."""
        now = self._clock.monotonic()
        if now - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = now
        for job_id in await self._store.jobs():
            async with self._db.session() as session:
                named = set(
                    await session.scalars(
                        select(OutputFile.sha256).where(OutputFile.job_id == job_id)
                    )
                )
            await self._store.sweep(job_id, named, self._options.abandoned_upload_seconds)

    async def _limits(self, session: AsyncSession, job_id: str) -> OutputLimits:
        spec = await session.scalar(select(Job.spec).where(Job.id == job_id))
        if spec is None:
            raise NotFoundError("job", job_id)
        return OutputLimits.of(self._options, spec)

    async def _check_token(self, job_id: str, attempt: int) -> None:
        async with self._db.session() as session:
            await self._check_token_in(session, job_id, attempt)

    async def _check_token_in(self, session: AsyncSession, job_id: str, attempt: int) -> Attempt:
        found = await session.get(Attempt, (job_id, attempt))
        if found is None:
            raise NotFoundError("attempt", f"{attempt} of job {job_id}")
        if found.revoked:
            name = await session.scalar(select(Job.name).where(Job.id == job_id))
            raise RevokedError(f"attempt {attempt} of {job_label(job_id, name)}")
        return found

    async def _record_full(self, job_id: str, attempt: int) -> None:
        """Record once per attempt that its files wait for space, if the database has some left."""
        if (job_id, attempt) in self._reported_full:
            return
        self._reported_full.add((job_id, attempt))
        reason = (
            "the coordinator's disk is full: new output files wait on their hosts until there is "
            "space"
        )
        try:
            async with self._db.transaction() as session:
                await self._record(session, job_id, attempt, EventCode.OUTPUTS_WAIT, reason, {})
        except DBAPIError as error:
            log.error("event_not_recorded", job=job_id, reason=reason, error=str(error.orig))
        self._notifier.notify_viewers(job_id)

    async def _record_shared(
        self, session: AsyncSession, job_id: str, attempt: int, shared: tuple[str, int, int]
    ) -> None:
        """Record once per job that several hosts have a file of the same name."""
        of_job = (Event.job_id == job_id, Event.code == EventCode.OUTPUT_SHARED.value)
        if await session.scalar(select(Event.seq).where(*of_job).limit(1)) is not None:
            return
        path, first, other = shared
        reason = (
            f"several hosts have written {path}: the file of rank {first}'s host is shown, and "
            f"?rank={other} has the other; the same is true of all such names"
        )
        data = {"path": path, "ranks": [first, other]}
        await self._record(session, job_id, attempt, EventCode.OUTPUT_SHARED, reason, data)

    async def _record_skipped(
        self,
        session: AsyncSession,
        job_id: str,
        attempt: int,
        skipped: Sequence[Skipped],
        limits: OutputLimits,
    ) -> None:
        """Record of each file of an attempt once that it is not stored, and why."""
        code = EventCode.OUTPUT_NOT_STORED
        events = await session.scalars(
            select(Event.reason).where(
                Event.job_id == job_id, Event.attempt == attempt, Event.code == code.value
            )
        )
        reported = set(events)
        for file in skipped:
            if len(reported) > MAX_SKIPPED_EVENTS:
                return
            reason = limits.describe(file)
            if len(reported) == MAX_SKIPPED_EVENTS:
                reason = f"more than {MAX_SKIPPED_EVENTS} output files were not stored"
            if reason not in reported:
                reported.add(reason)
                data = {"path": file.path, "size": file.size, "why": file.why}
                await self._record(session, job_id, attempt, code, reason, data)

    async def _record(
        self,
        session: AsyncSession,
        job_id: str,
        attempt: int,
        code: EventCode,
        reason: str,
        data: dict[str, Any],
    ) -> None:
        await record_event(
            session, job_id, time=self._clock.now(), kind="note", code=code, reason=reason,
            attempt=attempt, data=data,
        )  # fmt: skip
