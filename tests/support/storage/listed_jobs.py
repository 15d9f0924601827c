"""Jobs of a list, added with the columns that a test needs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from trainhall.cluster.jobs.service import JobService
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Job, JobProgress

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass(frozen=True)
class ListedJobs:
    """A list of jobs and the database that it is in."""

    database: Database
    service: JobService

    async def add(
        self,
        *names: str,
        metrics: dict[str, Any] | None = None,
        step: int = 0,
        ran: float | None = None,
        ranges: dict[str, list[float]] | None = None,
        gpus: int = 0,
        gpu_seconds: float = 0.0,
        **columns: Any,
    ) -> None:
        """Add jobs, an hour after each other."""
        async with self.database.transaction() as session:
            for name in names:
                newest = await session.scalar(select(func.count()).select_from(Job)) or 0
                job = Job(
                    **{
                        "id": f"{newest:04}-{name}"[:32], "number": newest + 1, "name": name,
                        "spec": {"task": None, "resources": {"workers": 1}}, "priority": 0,
                        "state": "completed", "reason": "", "world_size": 1, "attempt": 0,
                        "generation": 0, "restarts": 0, "restarts_step": 0,
                        "created_at": START + timedelta(hours=newest),
                        "queued_at": START + timedelta(hours=newest),
                        **columns,
                    }
                )  # fmt: skip
                session.add(job)
                await session.flush()
                session.add(
                    JobProgress(
                        job_id=job.id, step=step, metrics=metrics or {}, ranges=ranges or {}
                    )
                )
                if ran is not None:
                    session.add(
                        Attempt(
                            job_id=job.id, number=1, state="completed", reason="", world_size=1,
                            allocation=(), started_at=START, gpus=gpus,
                            gpu_seconds=gpu_seconds,
                            finished_at=START + timedelta(seconds=ran),
                        )
                    )  # fmt: skip

    async def names(self, query: str | None = None, sort: str | None = None, **more: Any) -> str:
        """Read all pages of two jobs each; return the names in their order."""
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.service.list(limit=2, query=query, sort=sort, cursor=cursor, **more)
            names += [job.name for job in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return " ".join(names)
