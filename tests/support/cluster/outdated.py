"""Hosts whose ranks a job has gone on without, and that do not know it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select
from support.cluster.simulated import SimulatedCluster, SimulatedNode

from trainhall.cluster.errors import RevokedError
from trainhall.db.models import Attempt, Job
from trainhall.monitoring.metrics import read_metrics

STALE = "step-00000090-a1-g1"
"""A checkpoint of theirs."""


@dataclass
class Outdated:
    cluster: SimulatedCluster
    job_id: str
    away: SimulatedNode
    """The host that has not noticed."""

    async def truth(self) -> dict[str, Any]:
        """All that it may not change."""
        coordinator = self.cluster.coordinator
        job = await self.cluster.job(self.job_id)
        saved = (await coordinator.checkpoints.list(self.job_id)).items
        attempts = await coordinator.jobs.attempts(self.job_id)
        _, captured = await coordinator.gradients.history(self.job_id, 100)
        async with self.cluster.db.session() as session:
            row = await session.get_one(Job, self.job_id)
            rows = await session.scalars(
                select(Attempt).where(Attempt.job_id == self.job_id).order_by(Attempt.number)
            )
            fixed = [(a.first_step, a.began, a.failure, a.goal, a.rendezvous) for a in rows]
        return {
            "job": (job.state, job.attempt, job.generation, job.step, job.total_steps, job.reason),
            "metrics": job.metrics,
            "budget": (row.restarts, row.restarts_step),
            "checkpoints": [(each.attempt, each.step, each.state) for each in saved],
            "attempts": [(a.attempt, a.state, a.reason, a.timeline) for a in attempts],
            "fixed": fixed,
            "gradients": [(each.attempt, each.step, each.norms) for each in captured],
            "curve": await self.curve(),
        }

    async def curve(self) -> dict[int, float]:
        """The loss at each step; empty where none was measured."""
        return {
            step: value
            for loss in await read_metrics(self.cluster.db, self.job_id, names=["loss"])
            for step, value in zip(loss.run.steps.tolist(), loss.run.last.tolist(), strict=True)
        }

    async def fail_to_upload(self) -> None:
        """It tries to, and is refused."""

        async def chunks() -> AsyncIterator[bytes]:
            yield b"{}"

        checkpoints = self.cluster.coordinator.checkpoints
        with pytest.raises(RevokedError):
            await checkpoints.uploads.receive(self.job_id, STALE, "state.json", chunks())
        with pytest.raises(RevokedError):
            await checkpoints.uploads.commit(self.job_id, STALE)
