"""Metric points per second that the coordinator stores, against a bare endpoint.

    python -m benchmarks.coordinator.ingest [--seconds 3] [--rounds 3] [--connections 8]

Both are asked over HTTP by the same client, in turn. The coordinator does all it does for an agent:
it knows the node by its credential, looks the attempt up, checks every frame, notes the last
values, commits, wakes viewers and packs meanwhile. The bare endpoint has no middleware and stores
the same bytes as they are, one row and one commit a request. The goals are 1,000,000 points a
second and half of the bare endpoint's rate.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.coordinator.server import (
    NAMES,
    Connection,
    Server,
    batch,
    coordinator,
    served,
)
from benchmarks.report import Figure, report

GOAL_POINTS = 1_000_000
GOAL_RATIO = 0.5
SIZES = {"small": (1, 25), "packed": (20, 250)}
"""Frames in a batch, rows in a frame."""
_GENERATIONS = itertools.count(1)
"""Each batch of a writer counts once."""


async def rate(server: Server, size: tuple[int, int], seconds: float, connections: int) -> float:
    """Points a second while every connection, a writer of its own, sends batch after batch."""
    frames, rows = size
    ahead = 400 if frames == 1 else 60
    bodies = [batch(1 + i * frames, frames, rows) for i in range(ahead)]
    sent = 0

    async def send(number: int, deadline: float) -> None:
        nonlocal sent
        connection = await Connection.open(server.port)
        while time.perf_counter() < deadline:
            path = server.metrics_path(number, next(_GENERATIONS))
            for body in bodies:
                await connection.request("POST", path, body, server.credential)
                sent += 1
                if time.perf_counter() > deadline:
                    break
        await connection.close()

    begun = time.perf_counter()
    await asyncio.gather(*(send(i, begun + seconds) for i in range(connections)))
    return sent * frames * rows * len(NAMES) / (time.perf_counter() - begun)


def serve_bare(folder: Path, fd: int) -> None:
    import sqlite3

    import uvicorn
    from fastapi import FastAPI, Request

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        rows.close()

    app = FastAPI(lifespan=lifespan)
    rows = sqlite3.connect(folder / "bare.db", check_same_thread=False, isolation_level=None)
    rows.execute("PRAGMA journal_mode = WAL")
    rows.execute("PRAGMA synchronous = FULL")
    rows.execute("CREATE TABLE batches (id INTEGER PRIMARY KEY, writer TEXT, body BLOB)")
    turn = asyncio.Lock()

    @app.post("/api/v1/agent/jobs/{job_id}/attempts/{attempt}/metrics")
    async def store(request: Request, job_id: str, attempt: int, writer: str) -> dict[str, int]:
        body = await request.body()
        async with turn:
            await asyncio.to_thread(
                rows.execute, "INSERT INTO batches (writer, body) VALUES (?, ?)", (writer, body)
            )
        return {"sequence": 0}

    @app.get("/readyz")
    async def ready() -> None:
        return

    uvicorn.run(app, fd=fd, log_level="warning", access_log=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    figures: list[Figure] = []
    with coordinator() as ours, served("benchmarks.coordinator.ingest", "bare") as bare:
        for kind, size in SIZES.items():
            rates: dict[str, list[float]] = {"ours": [], "bare": []}
            for _ in range(options.rounds):
                for name, server in (("ours", ours), ("bare", bare)):
                    found = asyncio.run(rate(server, size, options.seconds, options.connections))
                    rates[name].append(found)
                    print(f"{kind} {name}: {found:,.0f} points/s", flush=True)
            # A batch of one small frame measures requests and commits, not points.
            goal = GOAL_POINTS if kind == "packed" else None
            mine, plain = (statistics.median(rates[name]) for name in ("ours", "bare"))
            figures += [
                Figure(f"{kind}: bare endpoint", plain, "points/s"),
                Figure(f"{kind}: coordinator", mine, "points/s", at_least=goal),
                Figure(f"{kind}: ratio", mine / plain, at_least=GOAL_RATIO),
            ]
    report(*figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve_bare(Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
