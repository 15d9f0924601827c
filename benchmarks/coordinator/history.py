"""Time to read the history of a series of a million points as 1,000 points, over HTTP.

    python -m benchmarks.coordinator.history [--points 1000000] [--rounds 50]

The points go in over HTTP as well, and are packed by the coordinator. Compared with the plain way:
one row a point, grouped by SQL.
"""

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.coordinator.server import JOB_ID, Connection, Server, batch, coordinator
from benchmarks.report import Figure, report
from trainhall.db.database import Database
from trainhall.db.models import MetricFrame

ROWS = 5000
MAX_POINTS = 1000


async def fill(server: Server, points: int, names: Sequence[str] = ("loss",)) -> None:
    """Send the points of each series and wait until they are packed."""
    connection = await Connection.open(server.port)
    path = server.metrics_path()
    for sequence in range(1, points // ROWS + 1):
        body = batch(sequence, 1, ROWS, names)
        await connection.request("POST", path, body, server.credential)
    await connection.close()
    database = Database(server.database_url)
    left = -1
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        async with database.session() as session:
            unpacked = select(func.count()).where(MetricFrame.packed.is_(False))
            found = await session.scalar(unpacked) or 0
        if found == left and found < 64:
            break  # a tail that is not worth a packing yet
        left = found
        await asyncio.sleep(1.0)
    await database.close()


async def milliseconds(server: Server, query: str, rounds: int) -> tuple[float, int]:
    """The median, and how many points came."""
    connection = await Connection.open(server.port)
    path = f"/api/v1/metrics/jobs/{JOB_ID}?names=loss&{query}"
    took, content = [], b""
    for _ in range(rounds):
        begun = time.perf_counter()
        content = await connection.request("GET", path, credential=server.token)
        took.append(1000 * (time.perf_counter() - begun))
    await connection.close()
    return statistics.median(took), len(json.loads(content)["series"][0]["points"])


def plain_milliseconds(points: int) -> float:
    """One row a point, grouped by SQL, without HTTP."""
    with tempfile.TemporaryDirectory() as folder:
        rows = sqlite3.connect(Path(folder) / "plain.db")
        rows.execute("CREATE TABLE points (step INTEGER PRIMARY KEY, time REAL, value REAL)")
        rows.executemany(
            "INSERT INTO points VALUES (?, ?, ?)",
            ((step, 1.7e9 + step, float(step % 977)) for step in range(1, points + 1)),
        )
        rows.commit()
        size = -(-points // MAX_POINTS)
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            rows.execute(
                "SELECT max(step), min(value), max(value) FROM points GROUP BY step / ?", [size]
            ).fetchall()
            took.append(1000 * (time.perf_counter() - begun))
        rows.close()
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    with coordinator() as server:
        asyncio.run(fill(server, options.points))
        overview, count = asyncio.run(
            milliseconds(server, f"max_points={MAX_POINTS}", options.rounds)
        )
        middle = options.points // 2
        zoomed, exact = asyncio.run(
            milliseconds(server, f"from_step={middle}&to_step={middle + 999}", options.rounds)
        )
    plain = plain_milliseconds(options.points)
    print(f"{options.points:,} points; overview of {count}, zoom of {exact}")
    report(
        Figure("row a point, grouped by SQL", plain, "ms"),
        Figure("overview", overview, "ms"),
        Figure("zoom", zoomed, "ms"),
        Figure("ratio", plain / overview),
    )


if __name__ == "__main__":
    main()
