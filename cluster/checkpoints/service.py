"""Checkpoints as records: commit, retention, verification, restore."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.checkpoints import views
from trainhall.cluster.checkpoints.lineage import STORE, candidates, restart_candidates
from trainhall.cluster.checkpoints.rows import IS_DELETING, load, load_locked, mark_deleted
from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.checkpoints.uploads import CheckpointUploads
from trainhall.cluster.checkpoints.views import checkpoint_view
from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    WrongStateError,
)
from trainhall.cluster.jobs.commands import Command, refusal
from trainhall.cluster.jobs.spec_changes import changed_spec, job_columns
from trainhall.cluster.jobs.summaries import CHECKPOINT_SAVED, run_times
from trainhall.cluster.jobs.views import Job as JobView
from trainhall.cluster.jobs.views import job_view
from trainhall.cluster.lifecycle.jobs import lock_job, move_job
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import WAITING_STATES, JobState, NodeState
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.database import Database
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Checkpoint, Job, JobProgress, Node
from trainhall.db.sanitize import sanitize_json
from trainhall.training.checkpoint.format.errors import BadCheckpointError, Problem
from trainhall.training.checkpoint.format.manifest import (
    FileRecord,
    file_within,
    read_files,
    verify_folder,
)
from trainhall.training.checkpoint.format.names import CheckpointName, parse_name
from trainhall.training.checkpoint.format.retention import Candidate, Verdict, verdicts
from trainhall.training.spec.recovery import CheckpointSpec

log = structlog.get_logger(__name__)

_TO_REMOVE = (
    select(Checkpoint.location, Attempt.allocation)
    .join(Attempt, (Attempt.job_id == Checkpoint.job_id) & (Attempt.number == Checkpoint.attempt))
    .where(IS_DELETING, Checkpoint.location != STORE)
    .order_by(Checkpoint.location)
)
_OF_NAME = select(Checkpoint.id).where(
    Checkpoint.job_id == bindparam("at_job"), Checkpoint.name == bindparam("at_name")
)
_KEPT = select(Checkpoint).where(
    Checkpoint.job_id == bindparam("at_job"), Checkpoint.state.in_(("committed", "corrupt"))
)


class CheckpointService:
    def __init__(
        self, db: Database, clock: Clock, ids: Ids, store: CheckpointStore, notifier: Notifier
    ) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids
        self._store = store
        self.uploads = CheckpointUploads(db, store)
        self._notifier = notifier
        self._verifying: dict[str, asyncio.Task[Sequence[Problem]]] = {}
        # Other work waits for these threads too: curves, what agents ship, uploads.
        self._hashing = asyncio.Semaphore(1)

    async def list(
        self, job_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> views.CheckpointPage:
        """A job's checkpoints, the newest first; those that are deleted are left out."""
        pagination.check_limit(limit)
        async with self._db.session() as session:
            if await session.get(Job, job_id) is None:
                raise NotFoundError("job", job_id)
            rows = await session.scalars(
                select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.state != "deleted")
            )
            ordered = sorted(rows, key=_age, reverse=True)
        if cursor is not None:
            behind = tuple(pagination.decode("checkpoints", cursor, int, int, int))
            ordered = [row for row in ordered if _age(row) < behind]
        items = [checkpoint_view(row) for row in ordered[:limit]]
        more = len(ordered) > limit
        last = ordered[limit - 1] if more else None
        following = pagination.encode("checkpoints", *_age(last)) if last else None
        return views.CheckpointPage(items=items, next_cursor=following)

    async def get(self, checkpoint_id: str) -> views.Checkpoint:
        async with self._db.session() as session:
            return checkpoint_view(await load(session, checkpoint_id))

    async def pin(self, checkpoint_id: str) -> views.Checkpoint:
        """Keep it until it is unpinned, whatever the retention says."""
        return await self._set_pinned(checkpoint_id, True)

    async def unpin(self, checkpoint_id: str) -> views.Checkpoint:
        """Leave it to the retention again, beginning with the job's next checkpoint."""
        return await self._set_pinned(checkpoint_id, False)

    async def _set_pinned(self, checkpoint_id: str, pinned: bool) -> views.Checkpoint:
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id)
            if row.state in ("deleting", "deleted"):
                raise WrongStateError(
                    f"checkpoint {checkpoint_id} is {row.state}; it can no longer be pinned",
                    row.state,
                )
            row.pinned = pinned
            await session.flush()
            return checkpoint_view(row)

    async def delete(self, checkpoint_id: str) -> views.Checkpoint:
        """Give a checkpoint up; its files go soon after.

        Raises:
            WrongStateError: it is pinned, or about to be restored.
        """
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id)
            if row.pinned:
                raise WrongStateError(
                    f"checkpoint {checkpoint_id} is pinned; unpin it first", "pinned"
                )
            job = await session.get(Job, row.job_id)
            assert job is not None
            if await _starts_from(session, job, row):
                raise WrongStateError(
                    f"job {job.id} is about to start from checkpoint {checkpoint_id}", row.state
                )
            if row.state in ("committed", "corrupt"):
                row.state = "deleting"
                await self._record_change(
                    session,
                    row,
                    f"the checkpoint of step {row.step} was deleted by a user",
                    "checkpoint_deleted",
                )
            view = checkpoint_view(row)
        self._notifier.notify_viewers(view.job_id)
        self._notifier.notify_all_nodes()
        await self.uploads.housekeep()
        return view

    async def verify(self, checkpoint_id: str) -> Sequence[Problem]:
        """Hash every file and compare it with the manifest; returns the problems.

        A damaged checkpoint stays marked until it is found whole: no attempt starts from it while
        there is a good one. Callers that ask during the hashing, as all hosts may, share the
        result.

        Raises:
            WrongStateError: it is deleted, or lies where the coordinator cannot see it.
        """
        running = self._verifying.get(checkpoint_id)
        if running is None:
            running = asyncio.create_task(self._verify(checkpoint_id), name="verify")
            self._verifying[checkpoint_id] = running
            running.add_done_callback(lambda _: self._verifying.pop(checkpoint_id))
        return await asyncio.shield(running)

    async def _verify(self, checkpoint_id: str) -> Sequence[Problem]:
        folder = await self._folder(checkpoint_id)
        async with self._hashing:
            problems = await asyncio.to_thread(verify_folder, folder)
        damage = next((problem for problem in problems if problem.is_damage), None)
        # Where even the folder of the job is gone, it may be the whole disk that is away.
        if damage is not None and await asyncio.to_thread(_is_seen, folder):
            await self.mark_corrupt(checkpoint_id, str(damage))
        if not problems:
            await self._mark_whole(checkpoint_id)
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

    async def files(self, checkpoint_id: str) -> Sequence[FileRecord]:
        """Every file of a checkpoint, the manifest last: together they are the whole of it.

        Raises:
            WrongStateError: it was deleted, is damaged, or the coordinator cannot see its files.
        """
        return await self._files(checkpoint_id, await self._folder(checkpoint_id))

    async def read(self, checkpoint_id: str, path: str) -> Path:
        """Return the path of one of a checkpoint's `files`; nothing else in its folder is served.

        Raises:
            NotFoundError: it is none of them, or not there any more.
            WrongStateError: as `files`.
        """
        folder = await self._folder(checkpoint_id)
        if path in {file.path for file in await self._files(checkpoint_id, folder)}:
            with contextlib.suppress(OSError):
                return await asyncio.to_thread(file_within, folder, path)
        raise NotFoundError("checkpoint file", f"{checkpoint_id}/{path}"[:160])

    async def _files(self, checkpoint_id: str, folder: Path) -> Sequence[FileRecord]:
        try:
            return await asyncio.to_thread(read_files, folder)
        except BadCheckpointError as error:
            detail = f"checkpoint {checkpoint_id} is damaged: {error}"
            raise WrongStateError(detail, "corrupt") from None

    async def _folder(self, checkpoint_id: str) -> Path:
        """Return the folder of a checkpoint's files, which the coordinator sees."""
        async with self._db.session() as session:
            row = await load(session, checkpoint_id)
        if row.state in ("deleting", "deleted"):
            raise WrongStateError(f"checkpoint {checkpoint_id} is {row.state}", row.state)
        if row.location.startswith(STORE):
            return self._store.folder(row.job_id, row.name)
        folder = Path(row.location)
        if not await asyncio.to_thread(_is_seen, folder):
            raise WrongStateError(
                f"the coordinator does not see {folder}; do this on a host that does, with the "
                f"folder's name: `trainhall ckpt verify {folder}`",
                row.state,
            )
        return folder

    async def mark_corrupt(self, checkpoint_id: str, why: str) -> None:
        """Mark a checkpoint that cannot be loaded: no attempt starts from it any more."""
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id)
            await self.corrupt(session, row, why)
        self._notifier.notify_viewers(row.job_id)

    async def _mark_whole(self, checkpoint_id: str) -> None:
        """Remove the mark of a repaired checkpoint: attempts may start from it again."""
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id)
            if row.state == "corrupt":
                row.state = "committed"
                await self._record_change(
                    session,
                    row,
                    f"the checkpoint of step {row.step} is intact again",
                    "checkpoint_repaired",
                )
        self._notifier.notify_viewers(row.job_id)

    async def corrupt(self, session: AsyncSession, row: Checkpoint, why: str) -> None:
        if row.state == "committed":
            row.state = "corrupt"
            await self._record_change(
                session,
                row,
                f"the checkpoint of step {row.step} is corrupt: {why}",
                "checkpoint_corrupt",
            )

    async def restore(
        self,
        checkpoint_id: str,
        *,
        resources: dict[str, Any] | None = None,
        parallelism: dict[str, Any] | None = None,
    ) -> JobView:
        """Queue the job again, to start its next attempt from this checkpoint.

        `resources` and `parallelism` replace keys of the job's spec. A job that is final is taken
        up again (edge p of the lifecycle); one that waits starts from here when its turn comes.

        Raises:
            WrongStateError: the job runs, or the checkpoint is no good.
            SpecError: the changed spec is not valid.
        """
        now = self._clock.now()
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id)
            progress = await session.get(JobProgress, row.job_id)
            job = await session.get(Job, row.job_id)
            assert job is not None
            assert progress is not None
            state = JobState(job.state)
            why = refusal(job, Command.RESTORE)
            if why is not None:
                raise WrongStateError(f"job {job.id} cannot be restored: {why}", state)
            if row.state != "committed":
                raise WrongStateError(
                    f"checkpoint {checkpoint_id} is {row.state}; restore another one", row.state
                )
            spec = changed_spec(job.spec, resources, parallelism)
            changes: dict[str, Any] = {
                **job_columns(spec),
                "restore_checkpoint_id": row.id,
                "restarts": 0,
                "restarts_step": progress.step,
            }
            reason = Reason.of(ReasonCode.RESTORED, step=row.step)
            if state in WAITING_STATES:
                await session.execute(
                    update(Job).where(Job.id == job.id, Job.state == state.value).values(**changes)
                )
                await record_event(
                    session, job.id, time=now, kind="note", code=reason.code, reason=reason.text
                )
            elif not await move_job(
                session, job.id, state, JobState.QUEUED,
                reason=reason, now=now, attempt=job.attempt, changes=changes,
            ):  # fmt: skip
                raise ConflictError(f"job {job.id} changed at the same time; try again")
            await session.refresh(job)
            await session.refresh(progress)
            ran = await run_times(session, [job.id])
            view = job_view(job, progress, ran[job.id])
        self._notifier.notify_job(view.id)
        return view

    async def record(
        self, session: AsyncSession, attempt: Attempt, job: Job, data: dict[str, Any]
    ) -> None:
        """Store what rank 0 committed, then let the retention give older ones up.

        Raises:
            InvalidValueError: it is no checkpoint of this token, or its upload was not committed.
        """
        name = str(data.get("name", ""))
        parsed = parse_name(name)
        current = (attempt.number, attempt.generation)
        if parsed is None or (parsed.attempt, parsed.generation) != current:
            raise InvalidValueError(
                "name", name[:80], f"{name[:80]!r} is none of attempt {attempt.number}'s"
            )
        plan = attempt.checkpoint_plan
        if plan.upload:
            if not self._store.has(job.id, name):
                raise InvalidValueError("name", name, f"{name} was reported but not uploaded")
            location = STORE
        else:
            location = f"{plan.folder}/{name}"
        known = await session.scalar(_OF_NAME, {"at_job": job.id, "at_name": name})
        if known is not None:
            return
        metrics = data.get("metrics")
        size = data.get("size")
        row = Checkpoint(
            id=self._ids.new(),
            job_id=job.id,
            attempt=attempt.number,
            generation=attempt.generation,
            step=parsed.step,
            name=name,
            location=location,
            size=size if isinstance(size, int) and 0 <= size < 2**63 else 0,
            state="committed",
            pinned=False,
            metrics=sanitize_json(metrics) if isinstance(metrics, dict) else {},
            created_at=self._clock.now(),
        )
        session.add(row)
        await session.flush()
        await self._record_change(session, row, f"saved at step {row.step}", CHECKPOINT_SAVED)
        await self._retain(session, job)

    async def collect(self, job_id: str, *, dry_run: bool) -> Sequence[views.Retention]:
        """Judge each of the job's checkpoints by its retention, the newest first.

        Unless it is a dry run, checkpoints that it does not keep are deleted. A save does the same
        by itself; use this after a pin was removed.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job = await session.get(Job, job_id)
            if job is None:
                raise NotFoundError("job", job_id)
            decisions = await self._retention_decisions(session, job)
            if not dry_run:
                await self._give_up(session, decisions)
            decided = [_retention_view(*each) for each in decisions]
        if not dry_run:
            self._notifier.notify_viewers(job_id)
            self._notifier.notify_all_nodes()
            await self.uploads.housekeep()
        return decided

    async def _retain(self, session: AsyncSession, job: Job) -> None:
        await self._give_up(session, await self._retention_decisions(session, job))

    async def _retention_decisions(
        self, session: AsyncSession, job: Job
    ) -> Sequence[tuple[Checkpoint, Verdict]]:
        """Return every checkpoint that is not deleted yet, newest first, with its verdict."""
        rule = CheckpointSpec.model_validate(job.spec["checkpoint"])
        rows = await session.scalars(_KEPT, {"at_job": job.id})
        ordered = sorted(rows, key=_age, reverse=True)
        good = [row for row in ordered if row.state == "committed"]
        lineage, _ = await candidates(session, job)
        of_good = verdicts(rule, [*map(_candidate, good)], lineage)
        decided = dict(zip([row.id for row in good], of_good, strict=True))
        for row in ordered:
            if row.state == "corrupt":
                decided[row.id] = Verdict(True, "corrupt; kept for inspection until you delete it")
            elif row.id == job.restore_checkpoint_id:
                decided[row.id] = Verdict(True, "the job is about to start from it")
        return [(row, decided[row.id]) for row in ordered]

    async def _give_up(
        self, session: AsyncSession, decisions: Sequence[tuple[Checkpoint, Verdict]]
    ) -> None:
        for row, verdict in decisions:
            if not verdict.keep:
                row.state = "deleting"
                reason = (
                    f"the checkpoint of step {row.step} was deleted by retention: {verdict.reason}"
                )
                await self._record_change(session, row, reason, "checkpoint_deleted")

    async def _record_change(
        self, session: AsyncSession, row: Checkpoint, reason: str, code: str
    ) -> None:
        await record_event(
            session,
            row.job_id,
            time=self._clock.now(),
            kind="checkpoint",
            code=code,
            reason=reason,
            attempt=row.attempt,
            data=checkpoint_view(row).model_dump(mode="json"),
        )

    async def to_remove(self, session: AsyncSession, node_id: str) -> Sequence[str]:
        """Folders on shared storage that this node is asked to remove.

        Nodes that ran the attempt are asked, since they certainly see the storage; if none of them
        is left, every node is.
        """
        rows = (await session.execute(_TO_REMOVE)).all()
        if not rows:
            return []
        ready = set(
            await session.scalars(select(Node.id).where(Node.state == NodeState.READY.value))
        )
        folders = []
        for location, allocation in rows:
            wrote = ready.intersection(allocation.node_ids)
            if node_id in wrote or not wrote:
                folders.append(location)
        return folders

    async def removed(self, session: AsyncSession, locations: Sequence[str]) -> None:
        """A node says that these folders are gone."""
        if locations:
            ids = await session.scalars(
                select(Checkpoint.id).where(Checkpoint.location.in_(locations), IS_DELETING)
            )
            await mark_deleted(session, ids.all())


async def _starts_from(session: AsyncSession, job: Job, row: Checkpoint) -> bool:
    """The job waits to start from this checkpoint, or its hosts may be fetching it."""
    if job.restore_checkpoint_id == row.id:
        return True
    lineage, _ = await restart_candidates(session, job)
    return job.state == JobState.STARTING and lineage[:1] == [row.name]


def _candidate(row: Checkpoint) -> Candidate:
    name = CheckpointName(row.step, row.attempt, row.generation)
    return Candidate(name, row.metrics, row.pinned)


def _retention_view(row: Checkpoint, verdict: Verdict) -> views.Retention:
    view = checkpoint_view(row)
    return views.Retention(checkpoint=view, keep=verdict.keep, reason=verdict.reason)


def _age(row: Checkpoint) -> tuple[int, int, int]:
    return (row.attempt, row.generation, row.step)


def _is_seen(folder: Path) -> bool:
    """Return whether the storage of a folder is mounted; the folder itself may be gone from it."""
    try:
        return folder.parent.is_dir()
    except OSError:
        # It may not be entered, or its server does not answer.
        return False
