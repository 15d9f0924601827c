"""Clusters and queues as the scheduler sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from support.cluster.facts import NOW, attempt_facts, job_facts
from support.cluster.facts import node_facts as node

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.scheduling.scheduler import QueueEntry
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    GrantFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)

Runs = tuple[JobFacts, AttemptFacts]


def job(number: int, workers: int, **more: Any) -> JobFacts:
    waiting: dict[str, Any] = {"state": JobState.QUEUED, "attempt": 0, "device": "auto"}
    return job_facts(id=f"job{number}", number=number, workers=workers, **waiting | more)


def attempt(job_id: str, devices: Mapping[str, Sequence[int]], **more: Any) -> AttemptFacts:
    """One that runs well on these devices."""
    hosts = tuple(
        HostFacts(name, name, HostReport("running"), devices=tuple(indices))
        for name, indices in devices.items()
    )
    return attempt_facts(hosts, job_id=job_id, **{"begun": True, "started_at": NOW} | more)


def running(
    job_id: str,
    number: int,
    devices: Mapping[str, Sequence[int]],
    *,
    seconds_left: float | None = None,
    in_place: bool = False,
    **more: Any,
) -> Runs:
    """A job that took 100 steps in 100 s, started `number` seconds after the others."""
    workers = sum(len(indices) for indices in devices.values())
    facts = job(number, workers, **more)
    steps = None if seconds_left is None else 100 + round(seconds_left)
    facts = replace(
        facts, id=job_id, state=JobState.RUNNING, attempt=1, step=100, total_steps=steps
    )
    began = NOW - timedelta(seconds=100)
    started = began + timedelta(seconds=number)
    its = attempt(
        job_id, devices, in_place=in_place, started_at=started, running_at=began, first_step=1
    )
    return facts, its


def cluster(
    nodes: Sequence[NodeFacts], runs: Sequence[Runs], waiting: Sequence[JobFacts]
) -> ClusterFacts:
    grants = tuple(
        GrantFacts(host.node_id, index, its.job_id, its.number)
        for _, its in runs
        for host in its.hosts
        for index in host.devices
    )
    jobs = (*(facts for facts, _ in runs), *waiting)
    return ClusterFacts(tuple(nodes), jobs, tuple(its for _, its in runs), grants)


def step(facts: ClusterFacts, entry: QueueEntry, now: datetime) -> ClusterFacts:
    """What becomes of it when a placed job starts; it takes as long as is expected of it."""
    assert entry.placed is not None
    number = entry.job.attempt + 1
    devices = {host.node_id: host.device_indices for host in entry.placed}
    its = attempt(entry.job.id, devices, number=number, started_at=now)
    count = sum(len(indices) for indices in devices.values())
    started = replace(entry.job, state=JobState.RUNNING, attempt=number, workers=count)
    if entry.job.step_seconds is not None:
        # Its pace is known from 100 steps, all of which it still has to take.
        pace = timedelta(seconds=entry.job.step_seconds)
        its = replace(its, running_at=now - 100 * pace, first_step=started.step - 99)
    return replace(
        facts,
        jobs=tuple(started if j.id == entry.job.id else j for j in facts.jobs),
        attempts=(*facts.attempts, its),
        grants=(
            *facts.grants,
            *(
                GrantFacts(node_id, index, entry.job.id, number)
                for node_id, indices in devices.items()
                for index in indices
            ),
        ),
    )


@st.composite
def busy_clusters(draw: st.DrawFn, *, estimates: bool = False) -> ClusterFacts:
    """Up to four nodes, on which some jobs run while others wait."""
    zones = st.sampled_from([{}, {"zone": "x"}, {"zone": "y"}])
    nodes = [
        node(
            f"n{i}", draw(st.integers(1, 4)), draw(st.sampled_from(["cpu", "cpu", "cuda"])),
            labels=draw(zones), state=draw(st.sampled_from([*[NodeState.READY] * 5, *NodeState])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    of_jobs = st.fixed_dictionaries(
        {
            "priority": st.integers(-1, 2),
            "preemption": st.sampled_from([True, True, False]),
            "project": st.sampled_from([None, "vision"]),
            "user": st.sampled_from(["ada", "bob"]),
            "queued_at": st.integers(0, 5).map(lambda h: NOW - timedelta(hours=12 * h)),
            "selector": zones,
        }
    )
    runs: list[Runs] = []
    for i, host in enumerate(nodes):
        free = [d.index for d in host.devices]
        while len(free) > 0 and draw(st.booleans()):
            taken = [free.pop() for _ in range(draw(st.integers(1, len(free))))]
            left = draw(st.sampled_from([None, 60, 600])) if estimates else None
            more: dict[str, Any] = {
                **draw(of_jobs),
                "selector": {},
                "device": host.devices[0].kind,
            }
            number = 100 * i + len(runs)
            runs.append(running(f"r{number}", number, {host.id: taken}, seconds_left=left, **more))
    waiting = []
    for i in range(draw(st.integers(0, 7))):
        most = draw(st.integers(1, 6))
        sizes = tuple(range(1, most + 1)) if draw(st.booleans()) and not estimates else (most,)
        pace = draw(st.sampled_from([None, 0.3, 3.0])) if estimates else None
        waiting.append(
            job(
                1000 + i, most, sizes=sizes, one_host=draw(st.booleans()),
                device=draw(st.sampled_from(["auto", "cpu"])), step_seconds=pace,
                total_steps=None if pace is None else 100, **draw(of_jobs),
            )
        )  # fmt: skip
    return cluster(nodes, runs, waiting)
