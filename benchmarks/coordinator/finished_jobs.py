"""The cost of 100,000 finished jobs in the database to a coordinator's recurring work.

    python -m benchmarks.coordinator.finished_jobs [--finished 100000] [--rounds 20]
        [--database URL]

Two coordinators in this process, one with an empty database and one with finished jobs in it, take
turns. The times are processor time, except where Postgres computes in a process of its own: there
they are wall time. Finished jobs should cost nothing: the goal leaves a quarter for noise.
"""

import argparse
import asyncio
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

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.cluster.simulated import SimulatedCluster
from support.storage.finished_jobs import add_finished_jobs

from trainhall.db.database import Database
from trainhall.training.link.status import Outcome

GOAL_RATIO = 1.25
NODES = 8
PAGE = 5


async def started(url: str, folder: Path, finished: int) -> SimulatedCluster:
    """A coordinator with a few nodes, and a database with so many finished jobs."""
    database = Database(url)
    await database.migrate()
    if finished:
        began = time.perf_counter()
        await add_finished_jobs(database, finished)
        print(f"{finished:,} finished jobs added in {time.perf_counter() - began:.1f} s")
    cluster = SimulatedCluster(database, folder)
    for number in range(NODES):
        await cluster.add_node(f"node-{number}")
    return cluster


async def measure(cluster: SimulatedCluster, clock: Callable[[], float]) -> dict[str, float]:
    """The seconds of each piece of recurring work, once."""
    taken: dict[str, float] = {}

    async def timed(name: str, work: Awaitable[object]) -> None:
        began = clock()
        await work
        taken[name] = clock() - began

    coordinator = cluster.coordinator
    began = clock()
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    taken["a job, from its submission until it runs"] = clock() - began
    await timed("a scheduling pass", coordinator.reconciler.pass_once())
    coordinator.gateway.wake_all()
    await timed(f"a message to each of {NODES} nodes", cluster.exchanged())
    await timed("a round of packing", coordinator.packer.pack_once())
    # Pages that are full on both sides after the first rounds.
    jobs = coordinator.jobs
    await timed("a page of jobs", jobs.list(limit=PAGE))
    await timed("a page of completed jobs", jobs.list(limit=PAGE, states=["completed"]))
    await timed("the queue", coordinator.queue.list())
    await cluster.finish(job_id, Outcome.COMPLETED)
    return taken


async def compare(urls: tuple[str, str], folder: Path, finished: int, rounds: int) -> None:
    clock = time.process_time if urls[0].startswith("sqlite") else time.perf_counter
    empty = await started(urls[0], folder / "empty", 0)
    full = await started(urls[1], folder / "full", finished)
    found: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    sides = [(0, empty), (1, full)]
    for _ in range(rounds):
        sides.reverse()
        for side, cluster in sides:
            for name, seconds in (await measure(cluster, clock)).items():
                found[name][side].append(seconds)
    figures = []
    for name, (without, beside) in found.items():
        before, after = statistics.median(without) * 1000, statistics.median(beside) * 1000
        print(f"{name}: {before:.1f} ms without and {after:.1f} ms with finished jobs")
        figures.append(Figure(f"{name}, ratio", after / before, at_most=GOAL_RATIO))
    report(*figures)
    for cluster in (empty, full):
        await cluster.close()
        await cluster.db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--database", nargs=2, metavar="URL", help="two empty Postgres databases instead of SQLite"
    )
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder:
        files = [f"sqlite:///{folder}/{name}.db" for name in ("empty", "full")]
        first, second = options.database or files
        asyncio.run(compare((first, second), Path(folder), options.finished, options.rounds))


if __name__ == "__main__":
    main()
