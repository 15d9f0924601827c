"""Lineage: an attempt's folder for checkpoints, and the checkpoint that it starts from.

The candidates follow the job's lineage: the last attempt's own checkpoints, newest first, then the
candidates that it was given itself. So after a restore to an older step, nothing written beyond
that step is picked up again by accident.

A job that has lost all of them does not start over alone: it gets the damaged ones. A rank that
loads one verifies it, so the attempt fails and reports why for each, unless a host's own copy is
good or the files were repaired.
"""

from dataclasses import replace

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.documents import CheckpointPlan, UnrecordedCheckpoints
from trainhall.db.models import Attempt, Checkpoint, Job

STORE = "store:"
"""Location of a checkpoint in the coordinator's own store."""


_IN_STATE = select(Checkpoint).where(
    Checkpoint.job_id == bindparam("at_job"), Checkpoint.state == bindparam("in_state")
)


async def checkpoint_plan(
    session: AsyncSession, job: Job, limit: int
) -> tuple[CheckpointPlan, list[str]]:
    """Return the next attempt's `Attempt.checkpoint_plan`, and notes for people."""
    path = job.spec["checkpoint"].get("path")
    folder = f"{str(path).rstrip('/')}/{job.id}" if path else None
    names, notes = await restart_candidates(session, job)
    unrecorded = None
    if folder is not None and job.restore_checkpoint_id is None:
        unrecorded = await _unrecorded(session, job)
    return CheckpointPlan(folder, folder is None, tuple(names[:limit]), unrecorded), notes


async def _unrecorded(session: AsyncSession, job: Job) -> UnrecordedCheckpoints | None:
    """Return checkpoints that the last attempt may have committed but not reported.

    Those of a revoked attempt do not count: they may have been written after the revocation. Those
    that it was to look for itself do, unless it has saved since.
    """
    last = await session.get(Attempt, (job.id, job.attempt)) if job.attempt else None
    if last is None:
        return None
    newest = await _newest_step(session, job.id, last.number, last.generation)
    if not last.revoked:
        after = -1 if newest is None else newest
        return UnrecordedCheckpoints(last.number, last.generation, after)
    passed_on = last.checkpoint_plan.unrecorded
    if passed_on is None or newest is not None:
        return None
    found = await _newest_step(session, job.id, passed_on.attempt, passed_on.generation)
    after = passed_on.after_step
    return replace(passed_on, after_step=after if found is None else max(found, after))


async def _newest_step(
    session: AsyncSession, job_id: str, attempt: int, generation: int
) -> int | None:
    """Return the newest step among a token's recorded checkpoints, in any state."""
    step: int | None = await session.scalar(
        select(func.max(Checkpoint.step)).where(
            Checkpoint.job_id == job_id,
            Checkpoint.attempt == attempt,
            Checkpoint.generation == generation,
        )
    )
    return step


async def restart_candidates(session: AsyncSession, job: Job) -> tuple[list[str], list[str]]:
    """Return the checkpoints that the job's ranks may start from, best first, and notes."""
    names, notes = await candidates(session, job)
    if names:
        return names, notes
    damaged, notes = await candidates(session, job, state="corrupt")
    if damaged:
        count = len(damaged)
        which = "its checkpoint is" if count == 1 else f"all {count} checkpoints are"
        notes.append(f"{which} corrupt; it does not restart from scratch on its own")
    return damaged, notes


async def candidates(
    session: AsyncSession, job: Job, *, state: str = "committed"
) -> tuple[list[str], list[str]]:
    """Return the checkpoints that the job would go back to, best first, and notes for people.

    Args:
        state: in which a checkpoint counts.
    """
    rows = await session.scalars(_IN_STATE, {"at_job": job.id, "in_state": state})
    good = {row.name: row for row in rows}
    if job.restore_checkpoint_id is None:
        return await _lineage(session, job.id, job.attempt, good, None), []
    wanted = await session.get(Checkpoint, job.restore_checkpoint_id)
    if wanted is None:
        return await _lineage(session, job.id, job.attempt, good, None), [
            "the checkpoint to restore no longer exists"
        ]
    names = await _lineage(session, job.id, wanted.attempt, good, wanted.step)
    if wanted.name in good:
        return names, [f"restoring step {wanted.step}"]
    return names, [f"the checkpoint of step {wanted.step} is {wanted.state}"]


async def _lineage(
    session: AsyncSession,
    job_id: str,
    number: int,
    good: dict[str, Checkpoint],
    up_to_step: int | None,
) -> list[str]:
    attempt = await session.get(Attempt, (job_id, number)) if number else None
    if attempt is None:
        return []
    own = sorted(
        (
            row
            for row in good.values()
            if row.attempt == number and (up_to_step is None or row.step <= up_to_step)
        ),
        key=lambda row: (row.generation, row.step),
        reverse=True,
    )
    names = [row.name for row in own]
    late = _reported_late(attempt.checkpoint_plan.unrecorded, good, up_to_step)
    inherited = [n for n in attempt.checkpoint_plan.resume if n in good]
    return list(dict.fromkeys([*names, *late, *inherited]))


def _reported_late(
    unrecorded: UnrecordedCheckpoints | None, good: dict[str, Checkpoint], up_to_step: int | None
) -> list[str]:
    """Return the unrecorded checkpoints that were reported since.

    The attempt may have resumed from there.
    """
    if unrecorded is None:
        return []
    token = (unrecorded.attempt, unrecorded.generation)
    rows = [
        row
        for row in good.values()
        if (row.attempt, row.generation) == token
        and row.step > unrecorded.after_step
        and (up_to_step is None or row.step <= up_to_step)
    ]
    return [row.name for row in sorted(rows, key=lambda row: row.step, reverse=True)]
