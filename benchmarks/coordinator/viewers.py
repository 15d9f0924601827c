"""Delay of a live frame to 200 viewers of one job, and growth of the coordinator's memory.

    python -m benchmarks.coordinator.viewers [--viewers 200] [--frames 10] [--seconds 10]
        [--rounds 3]

Compared with a bare application that hands each posted body to every websocket at once. The two
take turns; viewers are a process of their own.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from datetime import datetime

import numpy as np
import psutil
from websockets.asyncio.client import connect

from benchmarks.coordinator.server import JOB_ID, Connection, Server, coordinator, served
from benchmarks.report import Figure, report
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

MEBIBYTE = 1024 * 1024


def frame(sequence: int) -> bytes:
    """One point whose time is now."""
    return encode_frame(
        sequence,
        encode_tables([MetricTable(None, [sequence], [time.time()], {"loss": [0.5]})]),
    )


class Round:
    """One sender and many viewers of one server."""

    def __init__(self, server: Server, path: str, viewers: int, frames: int) -> None:
        self.late: list[float] = []
        """Seconds from the sending of a frame to each viewer's receiving it."""
        self._url = f"ws://127.0.0.1:{server.port}{path}"
        self._headers = server.authorization
        self._frames = frames
        self._ready = asyncio.Semaphore(0)
        self._viewers = [asyncio.create_task(self._view()) for _ in range(viewers)]

    async def until_ready(self) -> None:
        for _ in self._viewers:
            await self._ready.acquire()

    async def end(self) -> None:
        """Wait until every viewer has seen every frame."""
        async with asyncio.timeout(60):
            await asyncio.gather(*self._viewers)

    async def _view(self) -> None:
        async with connect(
            self._url, compression=None, proxy=None, max_size=None,
            additional_headers=self._headers,
        ) as socket:  # fmt: skip
            self._ready.release()
            seen = 0
            while seen < self._frames:
                message = json.loads(await socket.recv())
                now = time.time()
                points = message.get("points")
                if points:
                    # A frame that was stored with others may come in one table with them.
                    for _, moment, _ in points["loss"]:
                        self.late.append(now - datetime.fromisoformat(moment).timestamp())
                        seen += 1


async def coordinator_round(server: Server, options: argparse.Namespace, first: int) -> list[float]:
    total = options.frames * options.seconds
    async with asyncio.timeout(30):
        after = await newest(server)
    path = f"/api/v1/metrics/stream/{JOB_ID}?after={after}"
    watched = Round(server, path, options.viewers, total)
    await watched.until_ready()
    connection = await Connection.open(server.port)
    path = server.metrics_path()
    async for number in paced(total, options.frames):
        await connection.request("POST", path, frame(first + number), server.credential)
    await watched.end()
    await connection.close()
    return watched.late


async def newest(server: Server) -> int:
    """The sequence behind which only new frames come."""
    url = f"ws://127.0.0.1:{server.port}/api/v1/metrics/stream/{JOB_ID}?after={2**53 - 1}"
    async with connect(
        url, compression=None, proxy=None, additional_headers=server.authorization
    ) as socket:
        return int(json.loads(await socket.recv())["seq"])


async def bare_round(server: Server, options: argparse.Namespace) -> list[float]:
    total = options.frames * options.seconds
    watched = Round(server, "/stream", options.viewers, total)
    await watched.until_ready()
    connection = await Connection.open(server.port)
    async for number in paced(total, options.frames):
        moment = datetime.now().astimezone().isoformat()
        body = json.dumps({"points": {"loss": [[number, moment, 0.5]]}})
        await connection.request("POST", "/publish", body.encode())
    await watched.end()
    await connection.close()
    return watched.late


async def paced(total: int, per_second: int):  # type: ignore[no-untyped-def]
    """Numbers, each at its moment."""
    begun = time.perf_counter()
    for number in range(total):
        await asyncio.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
        yield number


def serve_bare(fd: int) -> None:
    import uvicorn
    from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect

    app = FastAPI()
    sockets: set[WebSocket] = set()

    @app.get("/readyz")
    async def ready() -> None: ...

    @app.websocket("/stream")
    async def stream(websocket: WebSocket) -> None:
        await websocket.accept()
        sockets.add(websocket)
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await websocket.receive_text()
        sockets.discard(websocket)

    @app.post("/publish")
    async def publish(request: Request) -> None:
        text = (await request.body()).decode()
        await asyncio.gather(*(s.send_text(text) for s in sockets), return_exceptions=True)

    uvicorn.run(
        app, fd=fd, log_level="warning", access_log=False, ws="websockets-sansio",
        ws_per_message_deflate=False,
    )  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve_bare(int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--frames", type=int, default=10, help="a second")
    parser.add_argument("--seconds", type=int, default=10, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ours: list[float] = []
    bare: list[float] = []
    memory: list[float] = []
    with coordinator() as server, served("benchmarks.coordinator.viewers", "bare") as peer:
        process = psutil.Process(server.pid)
        for number in range(options.rounds + 1):
            first = 1 + number * options.frames * options.seconds
            late = asyncio.run(coordinator_round(server, options, first))
            theirs = asyncio.run(bare_round(peer, options))
            memory.append(process.memory_info().rss / MEBIBYTE)
            print(
                f"round {number}: p99 {1000 * p99(late):.1f} ms, bare {1000 * p99(theirs):.1f} ms, "
                f"coordinator {memory[-1]:.0f} MiB"
            )
            if number:  # the first round warms up
                ours += late
                bare += theirs
    print(f"{len(ours):,} deliveries to {options.viewers} viewers")
    report(
        Figure("delivery, bare broadcast, p99", 1000 * p99(bare), "ms"),
        Figure("delivery, bare broadcast, median", 1000 * statistics.median(bare), "ms"),
        Figure("delivery, median", 1000 * statistics.median(ours), "ms"),
        Figure("delivery, p99", 1000 * p99(ours), "ms", at_most=250),
        Figure("delivery, longest", 1000 * max(ours), "ms"),
        Figure("memory of the coordinator added by a round", grown(memory), "MiB", at_most=2),
    )


def p99(values: list[float]) -> float:
    return float(np.percentile(values, 99))


def grown(memory: list[float]) -> float:
    """Mebibytes a round, behind the first one."""
    return (memory[-1] - memory[0]) / max(1, len(memory) - 1)


if __name__ == "__main__":
    main()
