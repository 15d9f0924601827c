"""Whatever happens in whatever order, the invariants hold, and in the end every job can finish.

Hypothesis drives a coordinator and simulated nodes: users submit, pause, resume, cancel; ranks
work, end and fail; agents restart, lose messages, are cut off, lose their disk; the coordinator
restarts.
"""

import random
from itertools import pairwise
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    rule,
)
from support.cluster.machine import ClusterMachine, run_machine
from support.cluster.simulated import SimulatedNode, failure

from trainhall.cluster.errors import WrongStateError
from trainhall.cluster.lifecycle.states import FINAL_STATES, JOB_EDGES, JobState
from trainhall.db.database import Database
from trainhall.training.link.status import Outcome


class Machine(ClusterMachine):
    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []
        self.final: dict[str, str] = {}

    @initialize(slots=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def start(self, slots: list[int]) -> None:
        self.start_cluster()
        for number, count in enumerate(slots):
            self.run(self.cluster.add_node(f"node-{number}", count))

    @property
    def nodes(self) -> list[SimulatedNode]:
        return list(self.cluster.nodes.values())

    def pick_node(self, number: int) -> SimulatedNode:
        return self.nodes[number % len(self.nodes)]

    @rule(workers=st.integers(1, 4), priority=st.integers(0, 2), restarts=st.integers(0, 2))
    def submit(self, workers: int, priority: int, restarts: int) -> None:
        if len(self.jobs) < 6:
            job_id = self.run(
                self.cluster.submit(workers, priority=priority, recovery={"max_restarts": restarts})
            )
            self.jobs.append(job_id)

    @rule(number=st.integers(0, 9), command=st.sampled_from(["pause", "resume", "cancel"]))
    def command(self, number: int, command: str) -> None:
        if not self.jobs:
            return
        job_id = self.jobs[number % len(self.jobs)]

        async def send() -> None:
            try:
                await getattr(self.cluster.coordinator.jobs, command)(job_id)
            except WrongStateError:
                return
            await self.cluster.settle()

        self.run(send())

    @rule(steps=st.integers(1, 3))
    def work(self, steps: int) -> None:
        self.run(self.cluster.work(steps))

    @rule(
        number=st.integers(0, 9),
        outcome=st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.STOPPED]),
    )
    def end_ranks(self, number: int, outcome: Outcome) -> None:
        """The ranks of one attempt end on one host."""
        running = [
            (node, a)
            for node in self.nodes
            for a in node.attempts.values()
            if a.outcome is None and a.phase == "running"
        ]
        if running:
            node, attempt = running[number % len(running)]
            node.end(attempt, outcome, failure() if outcome is Outcome.FAILED else None)
            self.cluster.send_report(node)
            self.run(self.cluster.settle())

    @rule(seconds=st.sampled_from([1.0, 5.0, 14.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.cluster.heartbeat(seconds))

    @rule(number=st.integers(0, 9), new_agent=st.booleans())
    def reconnect(self, number: int, new_agent: bool) -> None:
        async def act() -> None:
            await self.cluster.connect(self.pick_node(number), new_agent=new_agent)
            await self.cluster.settle()

        self.run(act())

    @rule(number=st.integers(0, 9))
    def cut_off_until_lost(self, number: int) -> None:
        """Its ranks continue, without reports."""

        async def act() -> None:
            await self.cluster.disconnect(self.pick_node(number))
            for _ in range(8):
                await self.cluster.heartbeat(12)

        self.run(act())

    @rule(number=st.integers(0, 9))
    def lose_disk(self, number: int) -> None:
        """The host is set up again: its processes and its data are gone, its credential is not."""

        async def act() -> None:
            node = self.pick_node(number)
            await self.cluster.disconnect(node)
            node.attempts.clear()
            await self.cluster.connect(node)
            await self.cluster.settle()

        self.run(act())

    @rule(number=st.integers(0, 9), seed=st.integers(0, 99))
    def disturb_messages(self, number: int, seed: int) -> None:
        """Messages to a node are lost; reports from it are repeated."""

        async def act() -> None:
            node = self.pick_node(number)
            chance = random.Random(seed)
            if node.channel is None:
                return
            for _ in range(3):
                node.work()
                for _ in range(chance.randint(1, 3)):
                    self.cluster.send_report(node)
                await self.cluster.exchanged()
                await self.cluster.coordinator.reconciler.settle()
                await self.cluster.exchanged()
                if chance.random() < 0.5:
                    node.channel.to_node.clear()
            await self.cluster.heartbeat(1)

        self.run(act())

    @rule(seconds=st.sampled_from([0.0, 60.0, 600.0]))
    def restart_coordinator(self, seconds: float) -> None:
        async def act() -> set[str]:
            before = {
                n.id
                for n in (await self.cluster.coordinator.nodes.list()).items
                if n.state == "ready"
            }
            await self.cluster.stop_coordinator()
            for node in self.nodes:
                node.work()
            self.cluster.clock.advance(seconds)
            self.cluster.start_coordinator()
            await self.cluster.settle()
            for node in self.nodes:
                await self.cluster.connect(node, new_agent=False)
            await self.cluster.settle()
            after = {
                n.id
                for n in (await self.cluster.coordinator.nodes.list()).items
                if n.state == "ready"
            }
            return before - after

        assert not self.run(act()), "a healthy node was given up by a restart"

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.run(self.cluster.check())
        for job_id in self.jobs:
            history = self.run(self.cluster.history(job_id))
            for start, end in pairwise(history):
                assert (JobState(start), JobState(end)) in JOB_EDGES
            if history[-1] in FINAL_STATES:
                assert self.final.setdefault(job_id, history[-1]) == history[-1]
            assert job_id not in self.final or history[-1] == self.final[job_id]

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        try:
            self.run(self._everything_can_end())
        finally:
            self.run(self.cluster.close())

    async def _everything_can_end(self) -> None:
        """Once the disturbances stop, every job that fits ends."""
        for node in self.nodes:
            await self.cluster.connect(node, new_agent=False)
        slots = sum(node.slots for node in self.nodes)
        for _ in range(60):
            await self.cluster.heartbeat(5)
            await self.cluster.work(2)
            open_jobs = []
            for job_id in self.jobs:
                job = await self.cluster.job(job_id)
                if job.state == "paused":
                    await self.cluster.coordinator.jobs.resume(job_id)
                elif job.state == "running":
                    await self.cluster.finish(job_id)
                if job.state not in FINAL_STATES and job.world_size <= slots:
                    open_jobs.append((job_id, job.state, job.reason))
            await self.cluster.check()
            if not open_jobs:
                return
        raise AssertionError(f"these do not end: {open_jobs}")


def test_cluster_keeps_its_invariants(database_url: str, tmp_path: Path) -> None:
    run_machine(Machine, Database(database_url), tmp_path, examples=12, steps=15)
