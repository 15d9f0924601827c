"""Retention: which checkpoints of a job are deleted, and where their files go."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints import views
from trainhall.cluster.checkpoints.lineage import STORE, candidates
from trainhall.cluster.checkpoints.rows import IS_DELETING, age, mark_deleted, record_change
from trainhall.cluster.checkpoints.views import checkpoint_view
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db.models import Attempt, Checkpoint, Job, Node, OrphanedCheckpoint
from trainhall.training.checkpoint.format.names import CheckpointName
from trainhall.training.checkpoint.format.retention import Candidate, Verdict, verdicts
from trainhall.training.spec.recovery import CheckpointSpec

_TO_REMOVE = (
    select(Checkpoint.location, Attempt.allocation)
    .join(Attempt, (Attempt.job_id == Checkpoint.job_id) & (Attempt.number == Checkpoint.attempt))
    .where(IS_DELETING, Checkpoint.location != STORE)
    .union_all(select(OrphanedCheckpoint.location, OrphanedCheckpoint.allocation))
    .order_by("location")
)
_KEPT = select(Checkpoint).where(
    Checkpoint.job_id == bindparam("at_job"), Checkpoint.state.in_(("committed", "corrupt"))
)


async def decide(session: AsyncSession, job: Job) -> Sequence[tuple[Checkpoint, Verdict]]:
    """Return every checkpoint that is not deleted yet, newest first, with its verdict."""
    rule = CheckpointSpec.model_validate(job.spec["checkpoint"])
    rows = await session.scalars(_KEPT, {"at_job": job.id})
    ordered = sorted(rows, key=age, reverse=True)
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


async def delete_unretained(
    session: AsyncSession, decisions: Sequence[tuple[Checkpoint, Verdict]], now: datetime
) -> None:
    """Mark the checkpoints that are not kept; their files go soon after."""
    for row, verdict in decisions:
        if not verdict.keep:
            row.state = "deleting"
            reason = f"the checkpoint of step {row.step} was deleted by retention: {verdict.reason}"
            await record_change(session, row, reason, EventCode.CHECKPOINT_DELETED, now)


async def to_remove(session: AsyncSession, node_id: str) -> Sequence[str]:
    """Return the folders on shared storage that this node is asked to remove.

    Nodes that ran the attempt are asked, since they certainly see the storage; if none of them
    is registered any more, every node is.
    """
    rows = (await session.execute(_TO_REMOVE)).all()
    if not rows:
        return []
    registered = set(await session.scalars(select(Node.id)))
    folders = []
    for location, allocation in rows:
        wrote = registered.intersection(allocation.node_ids)
        if node_id in wrote or not wrote:
            folders.append(location)
    return folders


async def removed(session: AsyncSession, node_id: str, reported: Sequence[str]) -> None:
    """Mark the checkpoints whose folders a node has removed, of those that it was asked to."""
    if not reported:
        return
    asked = await to_remove(session, node_id)
    if locations := [location for location in reported if location in asked]:
        ids = await session.scalars(
            select(Checkpoint.id).where(Checkpoint.location.in_(locations), IS_DELETING)
        )
        await mark_deleted(session, ids.all())
        orphaned = OrphanedCheckpoint.location.in_(locations)
        await session.execute(delete(OrphanedCheckpoint).where(orphaned))


def _candidate(row: Checkpoint) -> Candidate:
    name = CheckpointName(row.step, row.attempt, row.generation)
    return Candidate(name, row.metrics, row.pinned)


def retention_view(row: Checkpoint, verdict: Verdict, denied: str | None = None) -> views.Retention:
    """Build the view; `denied` as of `checkpoint_view`."""
    view = checkpoint_view(row, denied)
    return views.Retention(checkpoint=view, keep=verdict.keep, reason=verdict.reason)
