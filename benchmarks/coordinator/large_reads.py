"""Processor time of the coordinator's largest reads: 1,000 nodes of 8 GPUs, 1,000 waiting jobs.

    python -m benchmarks.coordinator.large_reads [--rounds 7]

Each read is done with the garbage collector as the coordinator sets it (`collect_rarely`), and with
Python's own setting, by turns.
"""

import argparse
import asyncio
import gc
import logging
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from benchmarks.report import Figure, report
from trainhall.api.host.garbage import collect_rarely
from trainhall.db.database import Database
from trainhall.db.models import Device, Job, JobProgress, Node

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.cluster.simulated import SimulatedCluster, spec

NODES, DEVICES, JOBS = 1000, 8, 1000
GOAL_RATIOS = {"all nodes": 1.05, "the whole queue": 0.7}
"""The rows of nodes are few objects, so there is little to search; they have to be no slower."""


async def fill(cluster: SimulatedCluster) -> None:
    """Add nodes, and jobs that select none of them."""
    now = cluster.clock.now()
    document = spec(DEVICES).model_dump(mode="json")
    document["resources"]["selector"] = {"zone": "elsewhere"}
    async with cluster.db.transaction() as session:
        for n in range(NODES):
            session.add(
                Node(
                    id=f"{n:012x}", name=f"gpu-{n:04}", state="ready", state_at=now, reason="",
                    host_use={}, created_at=now,
                )
            )  # fmt: skip
        for n in range(JOBS):
            session.add(
                Job(
                    id=f"{n:012x}", number=n + 1, name=f"job {n}", spec=document, priority=0,
                    state="queued", reason="submitted", world_size=DEVICES,
                    created_at=now, queued_at=now,
                )
            )  # fmt: skip
        await session.flush()
        session.add_all(JobProgress(job_id=f"{n:012x}") for n in range(JOBS))
        session.add_all(
            Device(
                node_id=f"{n:012x}", index=index, kind="cuda", name="H100", memory_total=80 << 30
            )
            for n in range(NODES)
            for index in range(DEVICES)
        )


async def seconds(read: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await read()
    return time.process_time() - began


async def compare(folder: Path, rounds: int) -> None:
    database = Database(f"sqlite:///{folder / 'trainhall.db'}")
    await database.migrate()
    cluster = SimulatedCluster(database, folder)
    await fill(cluster)
    coordinator = cluster.coordinator
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "all nodes": lambda: coordinator.nodes.list(limit=NODES),
        "the whole queue": lambda: coordinator.queue.list(limit=JOBS),
    }
    await coordinator.reconciler.settle()
    python = gc.get_threshold()
    ours, theirs = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(rounds):
        collect_rarely()
        for name, read in reads.items():
            ours[name].append(await seconds(read))
        gc.unfreeze()
        gc.set_threshold(*python)
        for name, read in reads.items():
            theirs[name].append(await seconds(read))
    figures = []
    for name in reads:
        taken, plain = (statistics.median(of[name]) * 1000 for of in (ours, theirs))
        figures += [
            Figure(name, taken, "ms"),
            Figure(
                f"{name}, of the time with Python's setting",
                taken / plain,
                at_most=GOAL_RATIOS[name],
            ),
        ]
    report(*figures)
    await cluster.close()
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The coordinator's largest reads.")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder:
        asyncio.run(compare(Path(folder), rounds))


if __name__ == "__main__":
    main()
