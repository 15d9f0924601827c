"""A cluster without processes, its nodes driven by hand: each takes a step when a test says so."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select
from support.database import state_of
from support.nodes.clock import SimulatedClock
from support.nodes.network import Network
from support.nodes.node import Node

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.jobs import views
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.wire.protocol import Assignment, AssignmentReport, DeviceInfo, HostUse
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Base, Event, Grant, Job
from trainhall.training.fencing import FencingToken
from trainhall.training.link.events import RankEvent
from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Rendezvous
from trainhall.training.link.stall import RankStall, Stall
from trainhall.training.link.status import FailedRank, Outcome
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import ChosenPlan, PlanPrediction


class CountingIds:
    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{self._count:012x}"

    def secret(self) -> str:
        self._count += 1
        return f"secret-{self._count}"


@dataclass
class RunningAttempt:
    assignment: Assignment
    phase: str = "preparing"
    outcome: Outcome | None = None
    failure: Failure | None = None
    shipped: bool = False
    plan: ChosenPlan | None = None
    plan_refusal: str | None = None
    preparing: str | None = None
    sessions: int | None = None
    failed_ranks: list[FailedRank] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    stall: Stall | None = None

    @property
    def token(self) -> FencingToken:
        return self.assignment.launch.token

    def fall(self, rank: int, why: Failure | None = None) -> None:
        """A rank dies; the others wait for a launch of a higher generation."""
        launch = self.assignment.launch
        slot = next(slot for slot in launch.ranks if slot.rank == rank)
        self.failed_ranks.append(
            FailedRank(
                **slot.model_dump(exclude={"local_rank"}),
                generation=launch.generation,
                failure=why or Failure(rank=rank, signal=9, message=f"rank {rank} was killed"),
            )
        )

    def regroup(self, assignment: Assignment) -> None:
        """The next generation's launch: processes of devices that it does not list leave."""
        devices = {slot.device_index for slot in assignment.launch.ranks}
        left = {p.device_index for p in self.assignment.launch.ranks} - devices
        self.leaving = sorted(left.union(self.leaving) - devices)
        self.assignment, self.failed_ranks = assignment, []


class SimulatedNode(Node):
    """A node that applies its desired state at once, and does nothing else before `work`."""

    def __init__(self, name: str, slots: int, kind: str = "cpu") -> None:
        super().__init__(name)
        self.slots = slots
        self.kind = kind
        self.container_engine: str | None = None
        self.attempts: dict[FencingToken, RunningAttempt] = {}
        self.launched: list[FencingToken] = []
        self.released: set[str] = set()
        """Every folder that it was asked to remove."""
        self.goals: list[str] = []
        self.answer: ChosenPlan | Failure | str = planned("fsdp")
        """What it plans."""

    @property
    def devices(self) -> Sequence[DeviceInfo]:
        return [
            DeviceInfo(index=i, kind=self.kind, name=f"{self.kind} {i}", memory_total=1 << 30)
            for i in range(self.slots)
        ]

    def host_use(self) -> HostUse:
        return HostUse(container_engine=self.container_engine)

    def assignment_reports(self) -> list[AssignmentReport]:
        return [self._report(attempt) for attempt in self.attempts.values()]

    def _report(self, attempt: RunningAttempt) -> AssignmentReport:
        launch = attempt.assignment.launch
        opens = launch.node_rank == 0 and attempt.phase in ("starting", "running")
        return AssignmentReport(
            job_id=launch.job_id,
            attempt=launch.attempt,
            generation=launch.generation,
            phase=attempt.phase,
            rendezvous=Rendezvous(address=self.address, port=29500) if opens else None,
            plan=attempt.plan if attempt.phase == "planning" else None,
            plan_refusal=attempt.plan_refusal if attempt.phase == "planning" else None,
            preparing=attempt.preparing,
            sessions=attempt.sessions,
            outcome=attempt.outcome,
            failure=attempt.failure,
            shipped=attempt.shipped,
            in_place=launch.in_place,
            failed_ranks=attempt.failed_ranks,
            leaving=attempt.leaving,
            stall=attempt.stall,
        )

    def take(self, text: str) -> None:
        super().take(text)
        self.released.update(self.removed)

    def desire(self, assignments: Sequence[Assignment]) -> None:
        wanted = {assignment.launch.token: assignment for assignment in assignments}
        for token, assignment in wanted.items():
            self.goals.append(assignment.goal)
            attempt = self.attempts.get(token) or self._earlier(token)
            if attempt is not None and attempt.token != token:
                del self.attempts[attempt.token]
                attempt.regroup(assignment)
                self.attempts[token] = attempt
            if attempt is None:
                if assignment.goal == "stop":
                    attempt = RunningAttempt(assignment, "exited", Outcome.STOPPED, shipped=True)
                else:
                    planning = assignment.launch.planning is not None
                    attempt = RunningAttempt(assignment, "planning" if planning else "preparing")
                self.attempts[token] = attempt
            attempt.assignment = assignment
            if attempt.phase == "planning" and assignment.launch.planning is None:
                attempt.phase = "preparing"
            if attempt.outcome is None and assignment.goal != "run":
                attempt.phase = "stopping"
        for token in [t for t in self.attempts if t not in wanted]:
            attempt = self.attempts[token]
            if attempt.outcome is None:
                attempt.phase, attempt.outcome = "exited", Outcome.STOPPED
            attempt.shipped = True
            del self.attempts[token]

    def _earlier(self, token: FencingToken) -> RunningAttempt | None:
        """The same attempt under a lower generation, if its processes are there to go on."""
        return next(
            (
                a
                for (job, number, generation), a in self.attempts.items()
                if (job, number) == token[:2] and generation < token[2]
                if a.outcome is None and a.phase == "running" and a.assignment.launch.in_place
            ),
            None,
        )

    def work(self) -> None:
        """Let every attempt take its next natural step."""
        for attempt in self.attempts.values():
            launch, goal = attempt.assignment.launch, attempt.assignment.goal
            attempt.leaving = []
            if not launch.ranks and attempt.outcome is None:
                self.end(attempt, Outcome.STOPPED)
                continue
            if attempt.outcome is not None:
                attempt.shipped = True
            elif goal == "pause":
                self.end(attempt, Outcome.PAUSED)
            elif goal == "stop":
                self.end(attempt, Outcome.STOPPED)
            elif attempt.phase == "planning":
                if isinstance(self.answer, Failure):
                    self.end(attempt, Outcome.FAILED, self.answer)
                elif isinstance(self.answer, str):
                    attempt.plan_refusal = self.answer
                else:
                    attempt.plan = self.answer
            elif attempt.phase == "preparing":
                if launch.node_rank == 0 or launch.rendezvous is not None:
                    attempt.phase = "starting"
                    self.launched.append(attempt.token)
            elif attempt.phase == "starting":
                attempt.phase = "running"

    def end(
        self, attempt: RunningAttempt, outcome: Outcome, failure: Failure | None = None
    ) -> None:
        attempt.phase, attempt.outcome, attempt.failure = "exited", outcome, failure

    def running(self, job_id: str) -> RunningAttempt:
        return next(a for t, a in self.attempts.items() if t[0] == job_id and a.outcome is None)


def stalled(rank: int, parts: int) -> Stall:
    """The report of a host whose one rank takes no step any more."""
    its = RankStall(rank=rank, step=10, parts=parts, activity="in the forward pass", idle=31.0)
    return Stall(limit=30, behind=None, ranks=[its])


def planned(strategy: str, **degrees: int) -> ChosenPlan:
    """A plan that a node might answer."""
    return ChosenPlan(
        parallelism={"strategy": strategy, **degrees},
        summary=f"{strategy} of a test",
        reason=f"{strategy} of a test has the shortest step",
        assumed="nothing",
        device="cpu 0",
        prediction=PlanPrediction(
            peak_memory_bytes=2 << 30, memory={"parameters": 2 << 30}, step_seconds=0.5
        ),
    )


class SimulatedCluster(Network[SimulatedNode]):
    """A coordinator under a clock of its own and its simulated nodes. Nothing runs in the
    background: `settle` lets everything happen that follows from the present."""

    clock: SimulatedClock

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder
        self.ids = CountingIds()
        self.options = ClusterOptions()
        self.clock = SimulatedClock()
        self.later_step = 2
        """The first step that later generations take."""
        self.stepped: set[FencingToken] = set()
        """Generations that have reported it; of one that a test adds, nothing is reported."""
        super().__init__(self._coordinator(), self.clock)

    def _coordinator(self) -> Coordinator:
        return Coordinator(
            self.db,
            data_dir=self.folder,
            clock=self.clock,
            ids=self.ids,
            options=self.options,
        )

    async def stop_coordinator(self) -> None:
        """The process ends; the agents' connections break, their ranks do not."""
        for node in self.nodes.values():
            await self.disconnect(node)
        await self.coordinator.reconciler.stop()

    def start_coordinator(self) -> None:
        """Another process on the same database."""
        self.coordinator = self._coordinator()

    async def add_node(self, name: str, slots: int = 2, kind: str = "cpu") -> SimulatedNode:
        node = SimulatedNode(name, slots, kind)
        await self.join(node)
        await self.connect(node)
        await self.settle()
        return node

    async def work(self, steps: int = 1) -> None:
        """Ranks take steps, agents report."""
        for _ in range(steps):
            for node in self.nodes.values():
                node.work()
                self.send_report(node)
            await self.settle()
            await self._take_first_steps()

    async def heartbeat(self, seconds: float = 0.0) -> None:
        """Time passes; every connected node reports."""
        self.clock.advance(seconds)
        for node in self.nodes.values():
            self.send_report(node)
        await self.settle()
        await self._take_first_steps()

    async def _take_first_steps(self) -> None:
        """Of later generations whose ranks are all there."""
        groups: dict[FencingToken, list[RunningAttempt]] = {}
        for node in self.nodes.values():
            for attempt in node.attempts.values():
                groups.setdefault(attempt.token, []).append(attempt)
        for token, attempts in groups.items():
            launches = [attempt.assignment.launch for attempt in attempts]
            ranks = sum(len(launch.ranks) for launch in launches)
            run = all(a.phase == "running" and not a.failed_ranks for a in attempts)
            if token in self.stepped or token[2] == 1 or ranks < launches[0].world_size or not run:
                continue
            self.stepped.add(token)
            now = self.clock.now().timestamp()
            data = {"generation": token[2], "step": self.later_step, "loaded": now}
            event = RankEvent(sequence=1, time=now, rank=0, kind="stepped", data=data)
            await self.coordinator.rank_events.accept(
                token[0], token[1], f"generation-{token[2]}", [event]
            )
            await self.settle()

    async def submit(self, workers: int = 1, **more: object) -> str:
        view, _ = await self.coordinator.jobs.submit(spec(workers, **more))
        await self.settle()
        return view.id

    async def job(self, job_id: str) -> views.Job:
        return await self.coordinator.jobs.get(job_id)

    async def run_until(self, job_id: str, state: str) -> views.Job:
        for _ in range(20):
            if await state_of(self.db, job_id) == state:
                return await self.job(job_id)
            await self.work()
        job = await self.job(job_id)
        raise AssertionError(f"job {job_id} is {job.state} ({job.reason}), not {state}")

    async def finish(
        self, job_id: str, outcome: Outcome = Outcome.COMPLETED, failure: Failure | None = None
    ) -> None:
        """The job's ranks end, on every host."""
        for node in self.nodes.values():
            for token, attempt in node.attempts.items():
                if token[0] == job_id and attempt.outcome is None:
                    node.end(attempt, outcome, failure)
        await self.work(2)

    async def save_checkpoint(self, job_id: str, step: int, **metrics: float) -> str:
        """Rank 0 commits a checkpoint on shared storage."""
        job = await self.job(job_id)
        name = f"step-{step:08d}-a{job.attempt}-g{job.generation}"
        data = {"name": name, "step": step, "size": 10, "metrics": metrics}
        await self.report_event(job_id, "checkpoint", data)
        return name

    async def report_event(self, job_id: str, kind: str, data: dict[str, Any]) -> None:
        job = await self.job(job_id)
        self._event_sequence = getattr(self, "_event_sequence", 0) + 1
        event = RankEvent(
            sequence=self._event_sequence,
            time=self.clock.now().timestamp(),
            rank=0,
            kind=kind,
            data=data,
        )
        await self.coordinator.rank_events.accept(job_id, job.attempt, "0-00000000", [event])

    async def check(self) -> None:
        """The invariants that hold at every moment."""
        async with self.db.session() as session:
            grants = (await session.scalars(select(Grant))).all()
            attempts = {(a.job_id, a.number): a for a in await session.scalars(select(Attempt))}
            jobs = (await session.scalars(select(Job))).all()
        held = [(g.node_id, g.device_index) for g in grants]
        assert len(held) == len(set(held))
        by_attempt: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for grant in grants:
            key = (grant.job_id, grant.attempt)
            by_attempt.setdefault(key, set()).add((grant.node_id, grant.device_index))
        for job in jobs:
            assert job.reason
            active = [
                a for (job_id, _), a in attempts.items()
                if job_id == job.id and a.state in ("starting", "running", "stopping")
            ]  # fmt: skip
            busy = job.state in ("starting", "running", "pausing", "cancelling")
            assert len(active) == (1 if busy else 0), (job.state, active)
            for attempt in active:
                assert attempt.number == job.attempt
                placed = attempt.allocation.devices
                assert len(placed) == attempt.world_size
                assert placed <= by_attempt[job.id, attempt.number]
        for node in self.nodes.values():
            assert len(node.launched) == len(set(node.launched)), "launched twice"
            used = [
                index
                for attempt in node.attempts.values()
                if attempt.outcome is None
                for index in [p.device_index for p in attempt.assignment.launch.ranks]
                + attempt.leaving
            ]
            assert len(used) == len(set(used)), "two attempts on one device"

    async def history(self, job_id: str) -> list[str]:
        async with self.db.session() as session:
            events = await session.scalars(
                select(Event).where(Event.job_id == job_id).order_by(Event.seq)
            )
            return [e.data["state"] for e in events if e.kind == "state"]


def spec(workers: int = 1, **more: object):  # type: ignore[no-untyped-def]
    return validate_spec(
        {
            "name": "test",
            "task": {"name": "synthetic"},
            "resources": {"workers": workers, "device": more.pop("device", "auto")},
            "training": {"steps": 100, "global_batch_size": 5040},
            "checkpoint": {"path": "/shared", **more.pop("checkpoint", {})},  # type: ignore[dict-item]
            **more,
        }
    )


async def wipe(db: Database) -> None:
    async with db.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            await session.execute(table.delete())


def failure(code: int = 1) -> Failure:
    return Failure(rank=0, exit_code=code, message="rank 0 raised ValueError: bad luck")
