"""Everything together: a coordinator that may die, hosts, users, and what goes wrong, by a seed."""

import asyncio
import itertools
import random
import traceback
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.cluster.lifecycle.creation import RequestKey
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.checks.invariants import (
    ASKED_AGAIN,
    LAUNCHED_AGAIN,
    SENT_AGAIN,
    Inspector,
    Measured,
)
from trainhall.cluster.simulator.checks.preemption import WAITED
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.cluster import Cluster
from trainhall.cluster.simulator.counting import Counting
from trainhall.cluster.simulator.database import Disk, SimulatedDatabase
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.loop import Process
from trainhall.cluster.simulator.network import Server
from trainhall.cluster.simulator.ranks import Fate, Group, Rank
from trainhall.cluster.simulator.shim import Folder, Machine, Shim, name
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.wire.protocol import Assignment, Desired
from trainhall.monitoring.chunks import Run
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Launch
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec

LIMITED_USER, LIMITED_DEVICES = "limited", 2
OPTIONS = ClusterOptions(
    heartbeat_seconds=1.5,
    suspect_after_seconds=3.0,
    lost_after_seconds=6.0,
    tick_seconds=3.0,
    shipping_patience_seconds=6.0,
    restart_backoff_limit_seconds=2.0,
    telemetry_seconds=60.0,
    housekeeping_seconds=60.0,
    queue_history_seconds=60.0,
    grow_after_seconds=3.0,
    grow_by_restart_after_seconds=10.0,
    # What is packed is not read here, and it is proved elsewhere.
    packing_seconds=1e6,
    quotas=Quotas(users={LIMITED_USER: LIMITED_DEVICES}),
)
"""Shorter than in production, in the same order: most nodes are lost while jobs run."""
FAULTY_SECONDS = (8.0, 14.0)
FATE_SHARE = 0.15
"""Share of processes that fail on their own."""
URGENT_SHARE = 0.5
"""Share of the large jobs among small ones that have a higher priority."""
PAUSING_SHARE = 0.2
"""Share of jobs that pause by themselves."""
FINISH_SECONDS = 400.0
"""Within which all has to be over once the last fault is."""


class _Ids:
    """Ids of the world, whichever coordinator asks."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"{next(self._numbers):012x}"

    def secret(self) -> str:
        return f"secret-{next(self._numbers)}"


class World(Cluster[Host]):
    def __init__(self, seed: int, story: Story) -> None:
        super().__init__(seed, story, WorldClock(), Counting)
        self.chance = chance.stream(seed, "world")
        self.users = self.link("users")
        self.jobs: list[str] = []
        """Jobs whose submission was acknowledged."""
        self.limited: set[str] = set()
        """Jobs of a user with a quota."""
        loop = asyncio.get_running_loop()
        self.disk = Disk(chance.stream(seed, "disk"), self._on_commit)
        self.inspector = Inspector(self.disk.connection, self.hosts, OPTIONS, story, loop.time)
        self.server = Server(self.inspector.receives, partial(self._on_error, "a request"))
        self.measured: dict[tuple[str, int, str], Measured] = {}
        self._ids = _Ids()
        self._coordinators = 0
        self.fatal: str | None = None

    def _on_commit(self) -> None:
        self.inspector.committed()

    # -- the coordinator -------------------------------------------------------------------------

    async def start_coordinator(self) -> None:
        self._coordinators += 1
        process = Process(f"coordinator {self._coordinators}")
        coordinator = Coordinator(
            SimulatedDatabase(self.disk, process),
            data_dir=Path("/nonexistent"),
            clock=self.clock,
            ids=self._ids,
            options=OPTIONS,
            on_fatal=partial(self._on_fatal, process),
        )
        self.inspector.began()
        await process.spawn(coordinator.start(), "start")
        self.server.open(process, coordinator)
        self.story.log("coordinator", f"number {self._coordinators} begins")

    def _on_fatal(self, process: Process, task: str, error: BaseException | None) -> None:
        if process.alive:
            self._on_error(f"the background task {task}", error)

    def _on_error(self, what: str, error: BaseException | None) -> None:
        if self.fatal is None:
            self.fatal = f"{what} of the coordinator ended: {error!r}"
            for line in traceback.format_exception(error) if error is not None else []:
                self.story.log("coordinator", line.rstrip())

    async def kill_coordinator(self) -> None:
        process = self.server.process
        self.server.close()
        if process is not None:
            self.story.muted = True
            await process.kill()
            self.story.muted = False

    # -- hosts -----------------------------------------------------------------------------------

    def add_host(self, slots: int) -> Host:
        return self._add(Host, f"host-{len(self.hosts) + 1}", slots, WorldClock())

    def fate(self, machine: Machine, launch: Launch, rank: int) -> Fate | None:
        if machine.chance.random() >= FATE_SHARE:
            return None
        step = machine.chance.randint(1, 15)
        return Fate("killed" if machine.chance.random() < 0.5 else "error", step)

    def joined(self, group: Group) -> None:
        self.story.log("ranks", f"{name(group.launch)} joined after step {group.step}")
        self.inspector.regroupings.joined(group)
        self.inspector.lineages.joined(group)
        self.inspector.pauses.joined(group)

    def stepped(self, group: Group) -> None:
        self.inspector.regroupings.stepped(group)
        self.inspector.lineages.stepped(group)
        self.inspector.pauses.stepped(group)

    def begins(self, rank: Rank) -> None:
        self.inspector.regroupings.begins(rank)

    def launched(self, shim: Shim, kept: Mapping[tuple[str, int], int]) -> None:
        self.story.log(shim.machine.name, f"launches {name(shim.launch)}")
        self.inspector.launched(shim, kept)

    def sent_away(self, shim: Shim, rank: Rank) -> None:
        self.inspector.regroupings.sent_away(shim, rank)

    def agent_takes(self, host: Host, desired: Desired) -> None:
        wanted = [_describe_assignment(a) for a in desired.assignments]
        self.story.log(host.name, f"shall {', '.join(wanted) or 'do nothing'}")
        self.inspector.regroupings.agent_takes(host, desired)

    def agent_runs_again(self) -> None:
        self.story.exercised[LAUNCHED_AGAIN] += 1

    def accepted(self, token: FencingToken, *, again: bool) -> None:
        job_id, attempt, _ = token
        self.inspector.reported(job_id, attempt)
        self.story.exercised[SENT_AGAIN] += again

    def ended(self, shim: Shim) -> None:
        self.inspector.ended(shim.launch.job_id, shim.launch.attempt, isolated=shim.isolated)

    def forgets(self, host: Host, folder: Folder) -> None:
        launch = folder.launch
        self.story.log(host.name, f"forgets job {launch.job_id} attempt {launch.attempt}")
        for spool in folder.spools.values():
            key = (launch.job_id, launch.attempt, f"{host.name} {spool.writer}")
            self.measured[key] = (spool.steps, spool.acked_frames)

    # -- users -----------------------------------------------------------------------------------

    async def submit_at(self, seconds: float, number: int) -> None:
        """Submit a job as a user, after a while, and retry until there is an answer."""
        key = f"key-{number}"
        slots = sum(len(host.devices) for host in self.hosts)
        job = _spec(self.chance, number, slots)
        await asyncio.sleep(seconds)
        await self._submit(key, job)

    async def _submit(self, key: str, job: JobSpec) -> str | None:
        """Submit a job; return its id, or None: something is broken."""
        for tries in itertools.count():
            if self.broken is not None:
                break
            self.story.exercised[ASKED_AGAIN] += tries > 0
            try:
                view, _ = await self.server.request(
                    self.users, lambda c: c.jobs.submit(job, RequestKey(key, "digest"))
                )
            except UnavailableError:
                await asyncio.sleep(self.chance.uniform(0.5, 3.0))
                continue
            self.inspector.acknowledged[key] = view.id
            self.jobs.append(view.id)
            if job.user == LIMITED_USER:
                self.limited.add(view.id)
            self.story.log("user", f"submitted {key}: job {view.id}, {view.world_size} workers")
            return view.id
        return None

    async def crowd(self, random_: random.Random) -> None:
        """Submit small jobs all the time, and one that needs every device."""
        slots = sum(len(host.devices) for host in self.hosts)
        numbers = itertools.count(100)
        is_urgent = random_.random() < URGENT_SHARE

        async def submit(workers: int, steps: int, priority: int) -> str | None:
            number = next(numbers)
            document = _document(random_, number, {"workers": workers}, steps, priority)
            return await self._submit(f"key-{number}", validate_spec(document))

        for _ in range(slots + 1):
            await submit(1, random_.randint(6, 30) if is_urgent else random_.randint(3, 8), 0)
        await asyncio.sleep(random_.uniform(0.0, 6.0))
        large = await submit(slots, random_.randint(2, 4), 2 if is_urgent else 0)
        if large is None:
            return
        self.inspector.preemption.mark_next(large)
        while self.inspector.preemption.waits(large) and self.broken is None:
            if len(self.inspector.unfinished_jobs()) <= 2 * slots:
                self.story.exercised[WAITED] += 1
                await submit(1, random_.randint(2, 6), 0)
            await self._resume_all()
            await asyncio.sleep(random_.uniform(0.5, 2.0))

    async def command(self, what: str, job_id: str) -> None:
        """Send a command, which may be refused or lost."""
        slots = sum(len(host.devices) for host in self.hosts)
        # A job larger than its quota would wait forever.
        most = min(slots, LIMITED_DEVICES) if job_id in self.limited else slots
        resources = _resources(self.chance, most) if what == "resize" else {}
        call: dict[str, Callable[[Coordinator], Coroutine[Any, Any, object]]] = {
            "resize": lambda c: c.jobs.resize(job_id, resources),
            "pause": lambda c: c.jobs.pause(job_id),
            "resume": lambda c: c.jobs.resume(job_id),
            "cancel": lambda c: c.jobs.cancel(job_id),
        }
        await self._ask(f"{what} {job_id}", call[what])

    async def remove(self, host: Host) -> None:
        """Remove a node as a user does; its agent joins again, as a new one."""
        await self._ask(f"remove {host.name}", lambda c: c.nodes.remove(host.node_id))

    async def drain(self, host: Host, what: Literal["drain", "undrain"]) -> bool:
        """Drain a node as a user does, or undo it; return whether that was answered."""
        node_id = host.node_id
        return await self._ask(f"{what} {host.name}", lambda c: getattr(c.nodes, what)(node_id))

    async def _ask(
        self, what: str, call: Callable[[Coordinator], Coroutine[Any, Any, object]]
    ) -> bool:
        """Send a command, which may be refused or lost; return whether that was answered."""
        try:
            await self.server.request(self.users, call)
        except (UnavailableError, ClusterError) as error:
            self.story.log("user", f"to {what} failed: {error}")
            return isinstance(error, ClusterError)
        self.story.log("user", f"asked to {what}")
        return True

    # -- the end ---------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Run without another fault, until everything is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FINISH_SECONDS
        while loop.time() < deadline and self.broken is None:
            await self._resume_all()
            if not self.inspector.unfinished():
                break
            await asyncio.sleep(3.0)
        if self.broken is None:
            self.inspector.check_end(self.measured)
            await self._check_curves()

    async def _check_curves(self) -> None:
        """Check the curves as users see them."""
        database = SimulatedDatabase(self.disk, Process("reader"))
        rows = self.disk.connection.execute("SELECT id FROM jobs WHERE state = 'completed'")
        for (job_id,) in rows.fetchall():
            curves = await read_metrics(database, job_id, ["loss"])
            run = next((c.run for c in curves if c.rank is None), Run.empty())
            self.inspector.check_curve(job_id, run.steps.tolist(), run.last.tolist(), self.measured)

    async def _resume_all(self) -> None:
        """Undo what users did that keeps jobs from their end."""
        out = self.disk.connection.execute("SELECT id FROM nodes WHERE state LIKE 'drain%'")
        drained = {node_id for (node_id,) in out.fetchall()}
        for host in self.hosts:
            if host.node_id in drained:
                await self.drain(host, "undrain")
        rows = self.disk.connection.execute("SELECT id FROM jobs WHERE state = 'paused'")
        for (job_id,) in rows.fetchall():
            await self.command("resume", job_id)

    @property
    def broken(self) -> str | None:
        return self.inspector.inspected.violation or self.fatal

    async def close(self) -> None:
        await self.kill_coordinator()
        await self.kill_agents()

    def count(self, table: str) -> int:
        """Count rows of a table of the coordinator's database."""
        (number,) = self.disk.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(number)


def _describe_assignment(assignment: Assignment) -> str:
    launch = assignment.launch
    later_one = f"/{launch.generation}" if launch.generation > 1 else ""
    what = assignment.goal if launch.ranks else "leave"
    return f"{what} {launch.job_id}/{launch.attempt}{later_one}"


def _resources(random_: random.Random, slots: int) -> dict[str, int]:
    """Return the resources of a job; every other one is elastic."""
    most = min(slots, random_.choice([1, 2, 3, 3, 4, 6]))
    if random_.random() < 0.5:
        return {"workers": most}
    return {"min_workers": random_.randint(1, min(2, most)), "max_workers": most}


def _spec(random_: random.Random, number: int, slots: int) -> JobSpec:
    resources = _resources(random_, slots)
    steps, priority = random_.randint(3, 25), random_.choice([0, 0, 1, 2, 5])
    document = _document(random_, number, resources, steps, priority)
    if (resources.get("workers") or resources["min_workers"]) <= LIMITED_DEVICES:
        # A job larger than its quota would wait forever.
        document["user"] = LIMITED_USER
    # Draws of its own, which change nothing else.
    own = random.Random(f"pauses/{document['recovery']}/{document['checkpoint']}/{steps}")
    if own.random() < PAUSING_SHARE:
        pauses = own.sample(range(1, steps), own.choice([1, 2]))
        document["training"]["pause_at"] = sorted(pauses)
    return validate_spec(document)


def _document(
    random_: random.Random, number: int, resources: dict[str, int], steps: int, priority: int
) -> dict[str, Any]:
    return {
        "name": f"job {number}",
        "task": {"name": "synthetic"},
        "resources": resources,
        # The one regroups in place, the other resumes in another attempt.
        "parallelism": {"strategy": "ddp" if random_.random() < 0.9 else "fsdp"},
        "training": {"steps": steps, "global_batch_size": 60},
        "checkpoint": {"path": "/shared", "every_steps": random_.randint(4, 12)},
        "recovery": {
            "max_restarts": random_.choice([0, 1, 3, 4, 5]),
            "on_isolation": "stop" if random_.random() < 0.15 else "keep",
            "regroup_seconds": random_.choice([3, 15, 15, 60]),
        },
        "priority": priority,
    }
