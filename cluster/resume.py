"""Where an attempt's checkpoints go, and which it starts from.

The candidates follow the job's lineage: those that the last attempt wrote, newest first, then those
that it was itself told to start from. So after a restore to an older step, what was written beyond
that step is not taken up again by accident.
"""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt, Checkpoint, Job

STORE = "store:"
"""Location of a checkpoint in the coordinator's own store."""


async def checkpoint_plan(
    session: AsyncSession, job: Job, limit: int
) -> tuple[dict[str, Any], list[str]]:
    """`Attempt.checkpoint_plan` of the job's next attempt, and notes for people."""
    path = job.spec["checkpoint"].get("path")
    folder = f"{str(path).rstrip('/')}/{job.id}" if path else None
    names, notes = await candidates(session, job)
    plan: dict[str, Any] = {"folder": folder, "upload": folder is None, "resume": names[:limit]}
    if folder is not None and job.restore_checkpoint_id is None:
        plan["unrecorded"] = await _unrecorded(session, job)
    return plan, notes


async def _unrecorded(session: AsyncSession, job: Job) -> dict[str, int] | None:
    """What the last attempt may have committed while nobody was left to tell of it.

    What a revoked one commits does not count: it may have been written after the revocation.
    """
    last = await session.get(Attempt, (job.id, job.attempt)) if job.attempt else None
    if last is None or last.revoked:
        return None
    newest = await session.scalar(
        select(func.max(Checkpoint.step)).where(
            Checkpoint.job_id == job.id,
            Checkpoint.attempt == last.number,
            Checkpoint.generation == last.generation,
        )
    )
    after = -1 if newest is None else newest
    return {"attempt": last.number, "generation": last.generation, "after_step": after}


async def candidates(session: AsyncSession, job: Job) -> tuple[list[str], list[str]]:
    """What the job would go back to, best first, and notes for people."""
    rows = await session.scalars(
        select(Checkpoint).where(Checkpoint.job_id == job.id, Checkpoint.state == "committed")
    )
    good = {row.name: row for row in rows}
    if job.restore_checkpoint_id is None:
        return await _lineage(session, job.id, job.attempt, good, None), []
    wanted = await session.get(Checkpoint, job.restore_checkpoint_id)
    if wanted is None:
        return await _lineage(session, job.id, job.attempt, good, None), [
            "the checkpoint to restore is gone"
        ]
    names = await _lineage(session, job.id, wanted.attempt, good, wanted.step)
    if wanted.name in good:
        return names, [f"restores step {wanted.step}"]
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
    inherited = [n for n in attempt.checkpoint_plan.get("resume", []) if n in good]
    return names + [name for name in inherited if name not in names]
