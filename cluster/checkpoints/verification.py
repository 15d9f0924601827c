"""Verification of checkpoints: their files are hashed, and damage is marked."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.access.roles import Action
from trainhall.cluster.checkpoints.files import CheckpointFiles, is_seen
from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.cluster.checkpoints.rows import load_checkpoint, load_locked, record_change
from trainhall.cluster.errors import NotFoundError, WrongStateError
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.waiting import end_tasks
from trainhall.db.models import Checkpoint, Job
from trainhall.training.checkpoint.format.errors import Problem
from trainhall.training.checkpoint.format.manifest import verify_folder

log = structlog.get_logger(__name__)


class CheckpointVerification(Service):
    def __init__(self, context: ServiceContext, files: CheckpointFiles) -> None:
        super().__init__(context)
        self._files = files
        self._running: dict[str, asyncio.Task[Sequence[Problem]]] = {}
        self._later: set[asyncio.Task[None]] = set()
        # Other work waits for these threads too: curves, what agents ship, uploads.
        self._hashing = asyncio.Semaphore(1)

    async def verify(self, checkpoint_id: str) -> Sequence[Problem]:
        """Hash every file and compare it with the manifest; returns the problems.

        A damaged checkpoint stays marked until it is found whole: no attempt starts from it while
        there is a good one. Callers that ask during the hashing, as all hosts may, share the
        result.

        Raises:
            ForbiddenError: the caller may not change it.
            NotFoundError: there is no such checkpoint that they see.
            WrongStateError: it is deleted, or lies where the coordinator cannot see it.
        """
        if not self._caller.is_admin:
            async with self._db.session() as session:
                await load_checkpoint(session, self._caller, checkpoint_id, Action.COMMAND)
        running = self._running.get(checkpoint_id)
        if running is None:
            running = asyncio.create_task(self._verify(checkpoint_id), name="verify")
            self._running[checkpoint_id] = running
            running.add_done_callback(lambda _: self._running.pop(checkpoint_id))
        problems = await asyncio.shield(running)
        await self._note(checkpoint_id, problems)
        return problems

    async def _note(self, checkpoint_id: str, problems: Sequence[Problem]) -> None:
        if not self._caller.user:
            return
        query = select(Job.project).join(Checkpoint, Checkpoint.job_id == Job.id)
        async with self._db.transaction() as session:
            project = await session.scalar(query.where(Checkpoint.id == checkpoint_id))
            detail = f"{len(problems)} problems" if problems else "it is whole"
            self._audit(session, "checkpoint.verify", checkpoint_id, project=project, detail=detail)

    async def _verify(self, checkpoint_id: str) -> Sequence[Problem]:
        folder = await self._files.folder(checkpoint_id)
        async with self._hashing:
            problems = await asyncio.to_thread(verify_folder, folder)
        damage = next((problem for problem in problems if problem.is_damage), None)
        # Where even the folder of the job is gone, it may be the whole disk that is away.
        if damage is not None and await asyncio.to_thread(is_seen, folder):
            await self.mark(checkpoint_id, str(damage))
        if not problems:
            await self.mark(checkpoint_id, None)
        return problems

    async def verify_stored(self, job_id: str, name: str) -> Sequence[str]:
        """Return the problems of a checkpoint in the store that a host could not fetch whole.

        The host's word alone marks nothing: its own disk or the network may be to blame.

        Raises:
            NotFoundError: it is deleted, or does not lie in the store.
        """
        async with self._db.session() as session:
            checkpoint_id = await session.scalar(
                select(Checkpoint.id).where(
                    Checkpoint.job_id == job_id,
                    Checkpoint.name == name,
                    Checkpoint.location == STORE,
                    Checkpoint.state.in_(("committed", "corrupt")),
                )
            )
        if checkpoint_id is None:
            raise NotFoundError("checkpoint", f"{job_id}/{name}"[:160])
        try:
            return [str(problem) for problem in await self.verify(checkpoint_id)]
        except WrongStateError:
            raise NotFoundError("checkpoint", checkpoint_id) from None  # deleted meanwhile

    def verify_later(self, job_id: str, names: Sequence[str]) -> None:
        """Begin to verify the store's copies of checkpoints of which a host has no good copy."""
        task = asyncio.create_task(self._verify_named(job_id, names), name="verify later")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def stop(self) -> None:
        """End what runs in the background; the next report of a damaged copy verifies again."""
        await end_tasks([*self._later, *self._running.values()])

    async def _verify_named(self, job_id: str, names: Sequence[str]) -> None:
        try:
            async with self._db.session() as session:
                found = await session.scalars(
                    select(Checkpoint.id).where(
                        Checkpoint.job_id == job_id,
                        Checkpoint.name.in_(names),
                        Checkpoint.state == "committed",
                        Checkpoint.location == STORE,
                    )
                )
                suspects = found.all()
            for checkpoint_id in suspects:
                with contextlib.suppress(WrongStateError, NotFoundError):  # deleted meanwhile
                    await self.verify(checkpoint_id)
        except (SQLAlchemyError, OSError) as error:
            log.error("checkpoints_not_verified", job=job_id, error=str(error))

    async def mark(self, checkpoint_id: str, damage: str | None) -> None:
        """Mark a checkpoint corrupt, or remove the mark of one that was repaired: attempts may
        start from it again."""
        now = self._clock.now()
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id, SYSTEM)
            if damage is not None:
                await mark_corrupt(session, row, damage, now)
            elif row.state == "corrupt":
                row.state = "committed"
                why = f"the checkpoint of step {row.step} is intact again"
                await record_change(session, row, why, EventCode.CHECKPOINT_REPAIRED, now)
        self._notifier.notify_viewers(row.job_id)


async def mark_corrupt(session: AsyncSession, row: Checkpoint, why: str, now: datetime) -> None:
    """Mark a checkpoint that cannot be loaded: no attempt starts from it any more."""
    if row.state == "committed":
        row.state = "corrupt"
        reason = f"the checkpoint of step {row.step} is corrupt: {why}"
        await record_change(session, row, reason, EventCode.CHECKPOINT_CORRUPT, now)
