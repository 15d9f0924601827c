"""A simulated cluster whose ranks work by themselves, under a clock that a test advances."""

from pathlib import Path
from typing import Any

from sqlalchemy import select

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.jobs import views
from trainhall.cluster.simulator.chance import SeededIds
from trainhall.cluster.simulator.clock import SimulatedClock
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.host import Host
from trainhall.cluster.simulator.workload.work import Fate
from trainhall.db.database import Database
from trainhall.db.models import Event
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.link.launch import Launch
from trainhall.training.spec.parse import validate_spec


class WorkingCluster(SimulatedCluster):
    clock: SimulatedClock
    fates: dict[tuple[str, int], Fate]

    @classmethod
    async def started(
        cls, db: Database, folder: Path, *, seed: int = 1, hosts: int = 2, gpus: int = 4
    ) -> "WorkingCluster":
        clock = SimulatedClock()
        coordinator = Coordinator(db, data_dir=folder, clock=clock, ids=SeededIds(seed))
        made = cls(coordinator, clock, seed=seed, fate=lambda launch: made.fate_of(launch))
        made.fates = {}
        for number in range(hosts):
            await made.add_host(f"gpu-{number}", num_gpus=gpus)
        await made.turn()
        return made

    def fate_of(self, launch: Launch) -> Fate | None:
        """By the job's name and the attempt."""
        return self.fates.get((launch.spec.name, launch.attempt))

    def host(self, name: str) -> Host:
        return next(host for host in self.nodes.values() if host.name == name)

    async def submit(self, workers: int = 1, **more: Any) -> str:
        view, _ = await self.coordinator.jobs.submit(spec(workers, **more))
        await self.turn()
        return view.id

    async def let_pass(self, seconds: float, *, step: float = 2.0) -> None:
        """Time passes, in steps."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            self.advance()
            await self.ship()
            await self.turn()

    async def until(self, job_id: str, state: str, *, step: float = 2.0) -> views.Job:
        for _ in range(400):
            job = await self.coordinator.jobs.get(job_id)
            if job.state == state:
                return job
            await self.let_pass(step, step=step)
        raise AssertionError(f"job {job_id} is {job.state} ({job.reason}), not {state}")

    async def until_step(self, job_id: str, step: int) -> None:
        """Until so many steps are known."""
        for _ in range(400):
            if (await self.coordinator.jobs.get(job_id)).step >= step:
                return
            await self.let_pass(2.0)
        raise AssertionError(f"job {job_id} does not reach step {step}")

    async def curve(self, job_id: str, name: str, rank: int | None = None) -> dict[int, float]:
        """Values by step."""
        for series in await read_metrics(self.coordinator.db, job_id, [name]):
            if series.rank == rank:
                run = series.run
                return dict(zip(run.steps.tolist(), run.last.tolist(), strict=True))
        return {}

    async def events(self, job_id: str) -> list[Event]:
        async with self.coordinator.db.session() as session:
            rows = await session.scalars(
                select(Event).where(Event.job_id == job_id).order_by(Event.seq)
            )
            return list(rows)

    async def states(self, job_id: str) -> list[str]:
        return [e.data["state"] for e in await self.events(job_id) if e.kind == "state"]


def spec(workers: int = 1, **more: Any) -> Any:
    """Half a minute of work on the synthetic task."""
    return validate_spec(
        {
            "name": more.pop("name", "test"),
            "task": {"name": "synthetic", "params": {"step_seconds": 0.3}},
            "resources": {"workers": workers, "device": "cuda"},
            "training": {
                "steps": 100,
                "global_batch_size": 840,
                "evaluate_every_steps": 50,
                **more.pop("training", {}),
            },
            "checkpoint": {"every_steps": 20, "keep_latest": 2, **more.pop("checkpoint", {})},
            **more,
        }
    )
