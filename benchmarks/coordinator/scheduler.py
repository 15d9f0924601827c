"""Processor time of one scheduling pass over 1,000 nodes × 8 GPUs with 10,000 queued jobs.

The floor that it is held against is one pass over the same queue that only sorts it and makes its
entries: what no scheduler can do without.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from benchmarks.report import Figure, report
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.order import queue_order
from trainhall.cluster.scheduling.scheduler import QueueEntry, schedule
from trainhall.cluster.scheduling.views import Needs
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    DeviceFacts,
    GrantFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)

NODES, DEVICES, JOBS = 1000, 8, 10_000
LIMIT_MS = 100.0
ROUNDS = 7
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def nodes() -> tuple[NodeFacts, ...]:
    devices = tuple(DeviceFacts(index, "cuda") for index in range(DEVICES))
    return tuple(
        NodeFacts(f"{n:012x}", f"gpu-{n:04}", NodeState.READY, False, 0.0, devices)
        for n in range(NODES)
    )


def jobs(workers: Callable[[int], int]) -> tuple[JobFacts, ...]:
    return tuple(
        JobFacts(
            id=f"{n:012x}",
            number=n,
            priority=n % 5,
            state=JobState.QUEUED,
            reason="submitted",
            attempt=0,
            workers=workers(n),
            device="auto",
            queued_at=_NOW + timedelta(seconds=n),
            restarts=0,
            restarts_step=0,
            max_restarts=3,
            step=0,
        )
        for n in range(JOBS)
    )


def grants(per_node: int) -> tuple[GrantFacts, ...]:
    return tuple(
        GrantFacts(f"{n:012x}", index, f"{JOBS + n:012x}", 1)
        for n in range(NODES)
        for index in range(per_node)
    )


def running(per_node: int, *, elastic: bool = False) -> tuple[JobFacts, ...]:
    """The jobs that hold what `grants` gives, of the lowest priority and with a pace."""
    return tuple(
        JobFacts(
            id=f"{JOBS + n:012x}", number=JOBS + n, priority=-1, state=JobState.RUNNING, reason="",
            attempt=1, workers=per_node, device="cuda", queued_at=_NOW, restarts=0,
            restarts_step=0, max_restarts=3, step=1000, total_steps=2000 + n,
            sizes=tuple(range(1, per_node + 1)) if elastic else (),
        )
        for n in range(NODES)
    )  # fmt: skip


def attempts(per_node: int) -> tuple[AttemptFacts, ...]:
    began = _NOW - timedelta(hours=1)
    return tuple(
        AttemptFacts(
            f"{JOBS + n:012x}", 1, 1, AttemptState.RUNNING, "run", None,
            (
                HostFacts(
                    f"{n:012x}", f"gpu-{n:04}", None, devices=tuple(range(per_node))
                ),
            ),
            started_at=began, begun=True, running_at=began, first_step=1, in_place=True,
        )
        for n in range(NODES)
    )  # fmt: skip


def reserved(per_node: int, *, elastic: bool = False) -> ClusterFacts:
    """The first that waits needs half of the cluster; those behind ran before."""
    first = replace(jobs(mixed)[0], priority=9, workers=NODES * DEVICES // 2, sizes=())
    behind = [
        replace(job, step_seconds=0.1, total_steps=1000 * (1 + job.number % 90))
        for job in jobs(mixed)[1:]
    ]
    runs = running(per_node, elastic=elastic)
    return ClusterFacts(nodes(), (*runs, first, *behind), attempts(per_node), grants(per_node))


def floor(facts: ClusterFacts, options: ClusterOptions) -> None:
    by_order = partial(queue_order, options=options)
    reason = Reason.of(ReasonCode.WAITING_FOR_DEVICES)
    for position, job in enumerate(sorted(facts.jobs, key=by_order), start=1):
        QueueEntry(job, position, Needs(device="cuda", count=job.workers), reason, None)


def milliseconds(work: Callable[[], object]) -> float:
    found = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.thread_time()
        work()
        found.append((time.thread_time() - began) * 1000)
    return statistics.median(found)


def mixed(number: int) -> int:
    return (1, 2, 4, 8, 16)[number % 5]


def main() -> None:
    cases = {
        "a full cluster, all wait": ClusterFacts(nodes(), jobs(mixed), (), grants(DEVICES)),
        "half of it free": ClusterFacts(nodes(), jobs(mixed), (), grants(DEVICES // 2)),
        "all of it free, 8,000 jobs start": ClusterFacts(nodes(), jobs(lambda _: 1)),
        "a reservation and backfill, 6 of 8 held": reserved(6),
        "room made by hundreds of elastic jobs": reserved(DEVICES, elastic=True),
        "every job too large": ClusterFacts(nodes(), jobs(lambda _: NODES * DEVICES + 1)),
    }
    options = ClusterOptions()
    figures = []
    for name, facts in cases.items():
        taken = milliseconds(partial(schedule, _NOW, facts, options))
        least = milliseconds(partial(floor, facts, options))
        figures += [
            Figure(name, taken, "ms", at_most=LIMIT_MS),
            Figure(f"{name}, over the floor", taken / least, "times"),
        ]
    report(*figures)


if __name__ == "__main__":
    main()
