"""Time of sorted and filtered pages over 10,000 jobs, beside a page of the newest jobs.

    python -m benchmarks.coordinator.job_lists [--jobs 10000] [--rounds 40] [--database URL]

The times are processor time, of this process and of the server's processes that answer it, where
Postgres runs on this host; else they are wall time. All pages take turns.
"""

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import text

from benchmarks.report import Figure, report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.cluster.simulated import SimulatedCluster
from support.storage.finished_jobs import add_finished_jobs

from trainhall.api.host.garbage import collect_rarely
from trainhall.db.database import Database

LIMIT_MS = 100.0
NEWEST = "the newest"
PAGES: dict[str, dict[str, Any]] = {
    NEWEST: {},
    "by name": {"sort": "name"},
    "by state": {"sort": "state"},
    "by finished_at": {"sort": "-finished_at"},
    "by duration": {"sort": "-duration"},
    "by step": {"sort": "step"},
    "by a parameter": {"sort": "parameters.lr"},
    "by a metric": {"sort": "-metrics.loss"},
    "by the minimum of a metric": {"sort": "metrics.loss.min"},
    "by GPU-hours": {"sort": "-gpu_hours"},
    "by user": {"sort": "user"},
    "of a tag": {"query": "tag:t7"},
    "of a state": {"query": "state:failed"},
    "of a state, by a metric": {"query": "state:failed lr>0.01", "sort": "-metrics.loss"},
    "with a parameter": {"query": "lr>0.05 -name:99"},
    "with no match": {"query": "lr>5"},
    "of a user, by a parameter": {"query": "user:maria", "sort": "-parameters.lr"},
}
"""Arguments of `JobService.list` by the name of the page."""
_POSTGRES = """
    UPDATE jobs SET parameters = json_build_object('lr', (number % 997) / 1000.0, 'layers', 12,
        'optimizer', 'adamw', 'dropout', 0.1), tags = json_build_array('t' || (number % 50));
    UPDATE job_progress SET metrics = json_build_object('loss', 1.0 / (1 + length(job_id)),
        'eval_loss', 0.5, 'accuracy', 0.9, 'learning_rate', 0.001, 'step_seconds', 0.1)
"""
_SQLITE = _POSTGRES.replace("json_build_", "json_")


async def filled(url: str, folder: Path, jobs: int) -> SimulatedCluster:
    """A coordinator whose database has finished jobs with parameters and metrics."""
    database = Database(url)
    await database.migrate()
    await fill(database, jobs)
    return SimulatedCluster(database, folder)


async def fill(database: Database, jobs: int) -> None:
    await add_finished_jobs(database, jobs)
    postgres = database.dialect == "postgresql"
    async with database.transaction() as session:
        for statement in (_POSTGRES if postgres else _SQLITE).split(";"):
            await session.execute(text(statement))
    async with database.transaction() as session:
        await session.execute(text("ANALYZE"))


_BACKENDS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
"""


async def processor_clock(database: Database) -> Callable[[], float]:
    """Return a clock of the processor time that this process and the database's take."""
    if database.dialect == "sqlite":
        return time.process_time
    async with database.session() as session:
        pids = (await session.scalars(text(_BACKENDS))).all()
    # Nanoseconds on a processor; `psutil` counts in hundredths of a second.
    files = [Path(f"/proc/{pid}/schedstat") for pid in pids]
    if not all(file.exists() for file in files):
        return time.perf_counter
    return lambda: (
        time.process_time() + sum(int(file.read_text().split()[0]) / 1e9 for file in files)
    )


async def measure(url: str, folder: Path, jobs: int, rounds: int) -> None:
    cluster = await filled(url, folder, jobs)
    clock = await processor_clock(cluster.db)
    collect_rarely()
    taken: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, arguments in PAGES.items():
            began = clock()
            await cluster.coordinator.jobs.list(**arguments)
            # The first round fills caches.
            if number > 0:
                taken[name].append((clock() - began) * 1000)
    newest = statistics.median(taken[NEWEST])
    figures = []
    for name, times in taken.items():
        slowest = statistics.quantiles(times, n=20)[-1]
        ratio = statistics.median(times) / newest
        print(f"{name}: median {statistics.median(times):.1f} ms, {ratio:.1f} times the newest")
        figures.append(Figure(f"a page {name} (p95)", slowest, "ms", at_most=LIMIT_MS))
    print(f"load of this host: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    report(*figures)
    await cluster.close()
    await cluster.db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--database", metavar="URL", help="an empty Postgres instead of SQLite")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder:
        url = options.database or f"sqlite:///{folder}/jobs.db"
        asyncio.run(measure(url, Path(folder), options.jobs, options.rounds))


if __name__ == "__main__":
    main()
