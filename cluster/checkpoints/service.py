"""Checkpoints as records: commit, retention, verification, restore."""

from collections.abc import Sequence
from typing import Any, Self

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.limits import check_size, limits_for
from trainhall.cluster.access.principal import Owner, Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.checkpoints import retention, views
from trainhall.cluster.checkpoints.commands import CheckpointCommand, check_allowed
from trainhall.cluster.checkpoints.files import CheckpointFiles
from trainhall.cluster.checkpoints.lineage import STORE, restart_candidates
from trainhall.cluster.checkpoints.retention import retention_view
from trainhall.cluster.checkpoints.rows import (
    age,
    load_checkpoint,
    load_locked,
    record_change,
)
from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.checkpoints.uploads import CheckpointUploads
from trainhall.cluster.checkpoints.verification import CheckpointVerification
from trainhall.cluster.checkpoints.views import checkpoint_view
from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    WrongStateError,
)
from trainhall.cluster.jobs import commands
from trainhall.cluster.jobs.spec_changes import changed_spec, job_columns
from trainhall.cluster.jobs.views import Job as JobView
from trainhall.cluster.jobs.views import job_views
from trainhall.cluster.lifecycle.jobs import lock_job, move_job, record_reason
from trainhall.cluster.lifecycle.reasons import (
    A_USER,
    EventCode,
    Reason,
    ReasonCode,
    job_label,
)
from trainhall.cluster.lifecycle.states import WAITING_STATES, JobState
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.db.models import Attempt, Checkpoint, Job, JobProgress
from trainhall.db.sanitize import sanitize_metrics
from trainhall.training.checkpoint.format.names import parse_name

_OF_NAME = select(Checkpoint.id).where(
    Checkpoint.job_id == bindparam("at_job"), Checkpoint.name == bindparam("at_name")
)


class CheckpointService(Service):
    def __init__(self, context: ServiceContext, store: CheckpointStore) -> None:
        super().__init__(context)
        self._store = store
        self.uploads = CheckpointUploads(context.db, store)
        self.files = CheckpointFiles(context.db, store)
        self.verification = CheckpointVerification(context, self.files)

    def limited_to(self, caller: Principal) -> Self:
        limited = super().limited_to(caller)
        limited.files = self.files.limited_to(caller)
        limited.verification = self.verification.limited_to(caller)
        return limited

    async def list(
        self, job_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> views.CheckpointPage:
        """List a job's checkpoints, the newest first, without deleted ones."""
        pagination.check_limit(limit)
        async with self._db.session() as session:
            owner = await check_job(session, self._caller, job_id)
            rows = await session.scalars(
                select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.state != "deleted")
            )
            ordered = sorted(rows, key=age, reverse=True)
        if cursor is not None:
            behind = tuple(pagination.decode("checkpoints", cursor, int, int, int))
            ordered = [row for row in ordered if age(row) < behind]
        denied = self._denied(owner)
        items = [checkpoint_view(row, denied) for row in ordered[:limit]]
        more = len(ordered) > limit
        last = ordered[limit - 1] if more else None
        following = pagination.encode("checkpoints", *age(last)) if last else None
        return views.CheckpointPage(items=items, next_cursor=following)

    async def get(self, checkpoint_id: str) -> views.Checkpoint:
        async with self._db.session() as session:
            found = await load_checkpoint(session, self._caller, checkpoint_id, Action.READ)
        row, owner = found
        return checkpoint_view(row, self._denied(owner))

    def _denied(self, owner: Owner) -> str | None:
        return self._caller.refusal(Action.COMMAND, owner, "checkpoint")

    async def set_pinned(self, checkpoint_id: str, pinned: bool) -> views.Checkpoint:
        """Keep it whatever the retention says; or leave it to the retention again, beginning with
        the job's next checkpoint."""
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id, self._caller)
            check_allowed(row, CheckpointCommand.PIN if pinned else CheckpointCommand.UNPIN)
            if row.pinned != pinned:
                action = "checkpoint.pin" if pinned else "checkpoint.unpin"
                job = await load(session, Job, row.job_id)
                self._audit(session, action, row.id, project=job.project, detail=_of(row))
            row.pinned = pinned
            await session.flush()
            return checkpoint_view(row)

    async def delete(self, checkpoint_id: str) -> views.Checkpoint:
        """Delete a checkpoint; its files are removed soon after.

        Raises:
            WrongStateError: it is pinned, or about to be restored.
        """
        async with self._db.transaction() as session:
            row = await load_locked(session, checkpoint_id, self._caller)
            check_allowed(row, CheckpointCommand.DELETE)
            job = await load(session, Job, row.job_id)
            if await _starts_from(session, job, row):
                label = job_label(job.id, job.name)
                raise WrongStateError(
                    f"{label} is about to start from checkpoint {checkpoint_id}", row.state
                )
            if row.state in ("committed", "corrupt"):
                row.state = "deleting"
                who = self._caller.named or A_USER
                why = f"the checkpoint of step {row.step} was deleted by {who}"
                await record_change(
                    session, row, why, EventCode.CHECKPOINT_DELETED, self._clock.now()
                )
                self._audit(
                    session, "checkpoint.delete", row.id, project=job.project, detail=_of(row)
                )
            view = checkpoint_view(row)
        self._notifier.notify_viewers(view.job_id)
        self._notifier.notify_all_nodes()
        await self.uploads.housekeep()
        return view

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
            row = await load_locked(session, checkpoint_id, self._caller)
            progress = await session.get(JobProgress, row.job_id)
            job = await load(session, Job, row.job_id)
            assert progress is not None
            state = JobState(job.state)
            commands.check_allowed(job, commands.Command.RESTORE)
            check_allowed(row, CheckpointCommand.RESTORE)
            spec = changed_spec(job.spec, resources, parallelism)
            check_size(await limits_for(session, self._caller, job.project), spec, job.spec)
            changes: dict[str, Any] = {
                **job_columns(spec),
                "restore_checkpoint_id": row.id,
                "restarts": 0,
                "restarts_step": row.step,
                "pauses_after": row.step,
                "archived": False,
                "asked_by": self._caller.named,
            }
            progress.step = row.step
            reason = Reason.of(ReasonCode.RESTORED, step=row.step, user=self._caller.named)
            self._audit(session, "checkpoint.restore", row.id, project=job.project, detail=_of(row))
            if state in WAITING_STATES:
                await session.execute(
                    update(Job).where(Job.id == job.id, Job.state == state.value).values(**changes)
                )
                await record_reason(session, job.id, "note", reason, now)
            elif not await move_job(
                session, job.id, state, JobState.QUEUED,
                reason=reason, now=now, attempt=job.attempt, changes=changes,
            ):  # fmt: skip
                label = job_label(job.id, job.name)
                raise ConflictError(f"{label} changed at the same time; try again")
            await session.refresh(job)
            await session.refresh(progress)
            (view,) = await job_views(session, self._caller, [(job, progress)], now)
        self._notifier.notify_job(view.id)
        return view

    async def record(
        self, session: AsyncSession, attempt: Attempt, job: Job, data: dict[str, Any]
    ) -> None:
        """Store what rank 0 committed, then let the retention delete older ones.

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
        now = self._clock.now()
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
            metrics=sanitize_metrics(data.get("metrics")),
            created_at=now,
        )
        session.add(row)
        await session.flush()
        why = f"saved at step {row.step}"
        await record_change(session, row, why, EventCode.CHECKPOINT_SAVED, now)
        await retention.delete_unretained(session, await retention.decide(session, job), now)

    async def collect(self, job_id: str, *, dry_run: bool) -> Sequence[views.Retention]:
        """Check each of the job's checkpoints against its retention, the newest first.

        Unless it is a dry run, checkpoints that it does not keep are deleted. A save does the same
        by itself; use this after a pin was removed.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job = await load(session, Job, job_id)
            action = Action.READ if dry_run else Action.COMMAND
            self._caller.check(action, job, "job")
            decisions = await retention.decide(session, job)
            if not dry_run:
                await retention.delete_unretained(session, decisions, self._clock.now())
                self._audit(session, "checkpoint.collect", job_id, project=job.project)
            denied = self._denied(Owner(job.id, job.project, job.user))
            decided = [retention_view(*each, denied) for each in decisions]
        if not dry_run:
            self._notifier.notify_viewers(job_id)
            self._notifier.notify_all_nodes()
            await self.uploads.housekeep()
        return decided


def _of(row: Checkpoint) -> str:
    return f"step {row.step} of job {row.job_id}"


async def _starts_from(session: AsyncSession, job: Job, row: Checkpoint) -> bool:
    """Return whether the job waits to start from it, or its hosts may be fetching it."""
    if job.restore_checkpoint_id == row.id:
        return True
    lineage, _ = await restart_candidates(session, job)
    return job.state == JobState.STARTING and lineage[:1] == [row.name]
