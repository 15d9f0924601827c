"""Jobs, attempts and metric frames for tests of what the coordinator stores."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import update

from trainhall.db.database import Database
from trainhall.db.models import Attempt, Checkpoint, Job, JobProgress
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


async def add_job(database: Database, job_id: str = "job", attempts: int = 1) -> None:
    """A job with so many attempts, the newest of which runs."""
    async with database.transaction() as session:
        session.add(
            Job(
                id=job_id, number=sum(job_id.encode()), name="a job", spec={}, priority=0,
                state="running", reason="", attempt=attempts, world_size=2, created_at=NOW,
                queued_at=NOW,
            )
        )  # fmt: skip
        await session.flush()
        session.add(JobProgress(job_id=job_id))
        await session.flush()
        for number in range(1, attempts + 1):
            session.add(
                Attempt(
                    job_id=job_id, number=number, state="running", reason="", world_size=2,
                    allocation=[], started_at=NOW,
                )
            )  # fmt: skip


async def revoke(database: Database, job_id: str = "job", attempt: int = 1) -> None:
    async with database.transaction() as session:
        await session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id, Attempt.number == attempt)
            .values(revoked=True)
        )


async def commit_checkpoints(
    database: Database, steps: Sequence[int], job_id: str = "job", attempt: int = 1
) -> None:
    async with database.transaction() as session:
        session.add_all(
            Checkpoint(
                id=f"{attempt}-{step}", job_id=job_id, attempt=attempt, generation=1, step=step,
                name=f"step-{step:08d}-a{attempt}-g1", location="/shared", size=1,
                state="committed", created_at=NOW,
            )
            for step in steps
        )  # fmt: skip


def table(steps: Sequence[int], rank: int | None = None, **columns: Sequence[float]) -> MetricTable:
    """Points whose times follow from their steps."""
    return MetricTable(rank, steps, [1e9 + step for step in steps], columns)


def frame(sequence: int, *tables: MetricTable) -> bytes:
    return encode_frame(sequence, encode_tables(tables))
