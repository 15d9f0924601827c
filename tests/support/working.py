"""A simulated cluster whose ranks work by themselves, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select
from support.database import state_of, step_of

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.jobs import views
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.chance import SeededIds
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.database import Disk, SimulatedDatabase
from trainhall.cluster.simulator.loop import Process, VirtualLoop
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.host import GpuHost
from trainhall.cluster.simulator.ranks import Fate
from trainhall.db.models import Event
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.link.launch import Launch
from trainhall.training.spec.parse import validate_spec

OPTIONS = ClusterOptions(tick_seconds=5.0, packing_seconds=20.0)
"""Rarer than in production: in virtual time each is work, and events wake the reconciler."""


class WorkingCluster(SimulatedCluster):
    fates: dict[tuple[str, int], Fate]

    @classmethod
    async def started(
        cls, folder: Path, *, seed: int = 1, hosts: int = 2, gpus: int = 4
    ) -> "WorkingCluster":
        clock = WorldClock()
        db = SimulatedDatabase(Disk(chance.stream(seed, "disk")), Process("coordinator"))
        coordinator = Coordinator(
            db, data_dir=folder, clock=clock, ids=SeededIds(seed), options=OPTIONS, on_fatal=_fail
        )
        made = cls(clock, seed=seed, fate=lambda launch: made.fate_of(launch), broke=_fail)
        made.fates = {}
        await coordinator.start()
        made.serve(coordinator)
        for number in range(hosts):
            made.add_host(f"gpu-{number}", num_gpus=gpus)
        await made.connected()
        return made

    async def close(self) -> None:
        await self.kill_agents()
        await self.coordinator.stop()

    def fate_of(self, launch: Launch) -> Fate | None:
        """By the job's name and the attempt."""
        return self.fates.get((launch.spec.name, launch.attempt))

    def host(self, name: str) -> GpuHost:
        return next(host for host in self.hosts if host.name == name)

    async def submit(self, workers: int = 1, **more: Any) -> str:
        view, _ = await self.coordinator.jobs.submit(spec(workers, **more))
        return view.id

    async def until(self, job_id: str, state: str, *, step: float = 2.0) -> views.Job:
        for _ in range(400):
            if await state_of(self.coordinator.db, job_id) == state:
                return await self.coordinator.jobs.get(job_id)
            await asyncio.sleep(step)
        job = await self.coordinator.jobs.get(job_id)
        raise AssertionError(f"job {job_id} is {job.state} ({job.reason}), not {state}")

    async def until_step(self, job_id: str, step: int) -> None:
        """Until so many steps are known."""
        for _ in range(400):
            if await step_of(self.coordinator.db, job_id) >= step:
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"job {job_id} does not reach step {step}")

    async def until_attempt(self, job_id: str, number: int) -> None:
        for _ in range(400):
            if (await self.coordinator.jobs.get(job_id)).attempt == number:
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"job {job_id} does not reach attempt {number}")

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


def in_virtual_time(test: Callable[[WorkingCluster], Awaitable[None]]) -> Callable[[Path], None]:
    """Have a test play in a cluster of two hosts with four GPUs each, where no time passes but
    what is waited for."""

    async def play(folder: Path) -> None:
        cluster = await WorkingCluster.started(folder)
        try:
            await test(cluster)
        finally:
            await cluster.close()

    def run(tmp_path: Path) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(play(tmp_path))

    return run


def _fail(what: object, error: BaseException | None = None) -> None:
    raise AssertionError(f"{what} failed: {error!r}")


def spec(workers: int = 1, **more: Any) -> Any:
    """Ten seconds of work on the synthetic task."""
    return validate_spec(
        {
            "name": more.pop("name", "test"),
            "task": {"name": "synthetic", "params": {"step_seconds": 0.1}},
            "resources": {"workers": workers, "device": "cuda"},
            "training": {
                "steps": 100,
                "global_batch_size": 840,
                "evaluate_every_steps": 50,
                **more.pop("training", {}),
            },
            # Another attempt follows a failure, unless a test asks for regrouping in place.
            "recovery": {"regroup_seconds": 0, **more.pop("recovery", {})},
            "checkpoint": {"every_steps": 20, "keep_latest": 2, **more.pop("checkpoint", {})},
            **more,
        }
    )
