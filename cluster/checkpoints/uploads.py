"""Checkpoints in the coordinator's store: taken from agents, given to them, removed."""

from collections.abc import AsyncIterator

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.cluster.checkpoints.rows import IS_DELETING, mark_deleted
from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.errors import InvalidValueError, NotFoundError, RevokedError
from trainhall.cluster.lifecycle.reasons import job_label
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Checkpoint, Job
from trainhall.training.checkpoint.format.names import CheckpointName, parse_name

log = structlog.get_logger(__name__)


class CheckpointUploads:
    def __init__(self, db: Database, store: CheckpointStore) -> None:
        self._db = db
        self._store = store
        self._recorded: set[tuple[str, str]] = set()
        """Job and name of what lies in the store and was found to have its record."""

    async def receive(
        self,
        job_id: str,
        name: str,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        sha256: str | None = None,
    ) -> None:
        """Take one file of a checkpoint that an agent uploads.

        Raises:
            InvalidValueError, TooLargeError, DamagedError, NotFoundError
            RevokedError: the attempt that wrote it was replaced.
        """
        await self._check_token(job_id, name)
        await self._store.put(job_id, name, path, chunks, sha256=sha256)

    async def commit(self, job_id: str, name: str) -> None:
        """Make an upload a checkpoint. The record of it follows with the rank's own event."""
        await self._check_token(job_id, name)
        await self._store.commit(job_id, name)

    async def _check_token(self, job_id: str, name: str) -> None:
        parsed = parse_name(name)
        if parsed is None:
            raise InvalidValueError(
                "checkpoint", name[:80], f"{name[:80]!r} is not a checkpoint's name"
            )
        async with self._db.session() as session:
            attempt = await _writer_of(session, job_id, parsed)
            job = await session.get(Job, job_id)
        if attempt is None or job is None:
            label = job_label(job_id, job.name if job is not None else None)
            raise NotFoundError("attempt", f"{parsed.attempt} of {label}")
        if not _may_write(attempt, parsed):
            regrouped = not attempt.revoked and attempt.generation > parsed.generation
            which = f"attempt {parsed.attempt} of {job_label(job_id, job.name)}"
            raise RevokedError(which, parsed.generation if regrouped else None)

    async def housekeep(self) -> None:
        """Remove the store's files of deleted checkpoints; agents remove the others."""
        async with self._db.session() as session:
            rows = (
                await session.execute(
                    select(Checkpoint.id, Checkpoint.job_id, Checkpoint.name).where(
                        IS_DELETING, Checkpoint.location == STORE
                    )
                )
            ).all()
        for checkpoint_id, job_id, name in rows:
            try:
                await self._store.delete(job_id, name)
            except OSError as error:
                log.error("checkpoint_not_removed", job=job_id, name=name, error=str(error))
                continue
            async with self._db.transaction() as session:
                await mark_deleted(session, [checkpoint_id])

    async def remove_unrecorded(self) -> None:
        """Remove what became a checkpoint of the store while its token was revoked: the record of
        it was refused, and would never be removed otherwise."""
        found = await self._store.committed()
        self._recorded &= found
        for job_id, name in sorted(found - self._recorded):
            if await self._may_have_record(job_id, name):
                continue
            log.warning("replaced_checkpoint_removed", job=job_id, name=name)
            try:
                await self._store.delete(job_id, name)
            except OSError as error:
                log.error("checkpoint_not_removed", job=job_id, name=name, error=str(error))

    async def _may_have_record(self, job_id: str, name: str) -> bool:
        """Return whether a folder has a record, or may get one.

        Its rank may still report it, and another database may know it.
        """
        parsed = parse_name(name)
        assert parsed is not None
        async with self._db.session() as session:
            known = await session.scalar(
                select(Checkpoint.id).where(Checkpoint.job_id == job_id, Checkpoint.name == name)
            )
            attempt = await _writer_of(session, job_id, parsed)
        if known is not None:
            self._recorded.add((job_id, name))
        return known is not None or attempt is None or _may_write(attempt, parsed)


async def _writer_of(session: AsyncSession, job_id: str, name: CheckpointName) -> Attempt | None:
    """Return the attempt that a name refers to, if there is one."""
    return await session.get(Attempt, (job_id, min(name.attempt, 2**31 - 1)))


def _may_write(attempt: Attempt, name: CheckpointName) -> bool:
    return not attempt.revoked and attempt.generation == name.generation
