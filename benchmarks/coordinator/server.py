"""Shared by the coordinator's benchmarks: its process, a job in it, and a plain HTTP client."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from trainhall.api.host.credentials import admin_token
from trainhall.cluster.wire.writers import rank_writer
from trainhall.db.database import Database
from trainhall.db.documents import Allocation, NodeAllocation, RankPlacement
from trainhall.db.models import Attempt, Job, JobProgress
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

JOB_ID = "0123456789ab"
RANKS = 64
GENERATIONS = 10_000
NAMES = (
    "loss", "accuracy", "learning_rate", "gradient_norm", "samples_per_second", "step_seconds",
    "data_seconds", "forward_seconds", "backward_seconds", "communication_seconds",
    "optimizer_seconds", "peak_memory_bytes",
)  # fmt: skip


@dataclass
class Server:
    """A coordinator that listens, with one job and one node."""

    port: int
    folder: Path
    pid: int
    credential: str = ""
    """Of its node."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """Its first admin's; empty for a server that asks for none."""
        return admin_token(self.folder) or ""

    @property
    def authorization(self) -> dict[str, str]:
        """The header of its first admin."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def login_link(self) -> str:
        """Make a link that logs one browser in."""
        path = f"{self.url}/api/v1/auth/codes"
        made = httpx.post(path, headers=self.authorization, trust_env=False).raise_for_status()
        return f"{self.url}/login#code={made.json()['code']}"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.folder / 'trainhall.db'}"

    def metrics_path(self, rank: int = 0, generation: int = 1) -> str:
        """Where one process of the job sends its metrics; a generation's have their own."""
        writer = rank_writer(JOB_ID, 1, generation, rank)
        return f"/api/v1/agent/jobs/{JOB_ID}/attempts/1/metrics?writer={writer}"


@contextlib.contextmanager
def coordinator() -> Iterator[Server]:
    """The real application in a process of its own."""
    with served("benchmarks.coordinator.server", "trainhall") as server:
        with httpx.Client(
            base_url=f"{server.url}/api/v1", headers=server.authorization, trust_env=False
        ) as client:
            node = client.post("/cluster/nodes", json={}).raise_for_status().json()
            request = {
                "join_token": node["join_token"],
                "name": "bench",
                "address": "127.0.0.1",
                "agent_version": "0",
                "devices": [],
            }
            reply = client.post("/agent/join", json=request).raise_for_status().json()
            server.credential = reply["credential"]
        asyncio.run(add_job(server.database_url, reply["node_id"]))
        yield server


@contextlib.contextmanager
def served(module: str, kind: str) -> Iterator[Server]:
    """Run `python -m MODULE serve KIND FOLDER FD` on a free port."""
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        fd = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", module, "serve", kind, folder, str(fd)], pass_fds=[fd]
        )
        server = Server(listener.getsockname()[1], Path(folder), process.pid)
        listener.close()
        try:
            wait_until_ready(server, process)
            yield server
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(server: Server, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{server.url}/readyz", trust_env=False).is_success:
                return
        time.sleep(0.02)
    raise RuntimeError("the server ended before it was ready")


async def add_job(url: str, node_id: str) -> None:
    """A job of the node that is over for the scheduler, so that only what is measured happens."""
    ranks = tuple(RankPlacement(rank) for rank in range(RANKS))
    now = datetime.now(UTC)
    database = Database(url)
    async with database.transaction() as session:
        session.add(
            Job(
                id=JOB_ID, number=1, name="bench", spec={}, priority=0, state="completed",
                reason="", attempt=1, world_size=RANKS, created_at=now, queued_at=now,
            )
        )  # fmt: skip
        await session.flush()
        session.add(JobProgress(job_id=JOB_ID))
        session.add(
            Attempt(
                job_id=JOB_ID, number=1, state="completed", reason="", world_size=RANKS,
                generation=GENERATIONS, started_at=now,
                allocation=Allocation([NodeAllocation(node_id, "bench", ranks=ranks)]),
            )
        )  # fmt: skip
    await database.close()


def batch(
    first_sequence: int,
    frames: int,
    rows: int,
    names: Sequence[str] = NAMES,
    *,
    behind: int = 0,
) -> bytes:
    """Consecutive frames of the job's own series, with the steps behind one of them."""
    bodies = []
    for sequence in range(first_sequence, first_sequence + frames):
        first = behind + (sequence - 1) * rows + 1
        table = MetricTable(
            None,
            range(first, first + rows),
            [1.7e9 + step / 1000 for step in range(first, first + rows)],
            {name: [float(step % 977) for step in range(first, first + rows)] for name in names},
        )
        bodies.append(encode_frame(sequence, encode_tables([table])))
    return b"".join(bodies)


class Connection:
    """One kept-alive connection. Written out here, so that the client is not what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024 * 1024))

    async def request(
        self, method: str, path: str, body: bytes = b"", credential: str = ""
    ) -> bytes:
        """The body of the answer.

        Raises:
            RuntimeError: when the answer is not 200.
        """
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        if credential:
            head += f"Authorization: Bearer {credential}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        headers = answer.decode().lower().split("\r\n")
        length = next(int(h.split(":")[1]) for h in headers if h.startswith("content-length:"))
        content = await self._reader.readexactly(length)
        if " 200 " not in headers[0]:
            raise RuntimeError(f"{headers[0]}: {content[:500].decode(errors='replace')}")
        return content

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def main() -> None:
    import uvicorn

    from trainhall.api.app import create_app
    from trainhall.api.server import server_config
    from trainhall.api.settings import Settings

    folder, fd = Path(sys.argv[3]), int(sys.argv[4])
    settings = Settings(
        data_dir=folder,
        database_url=f"sqlite:///{folder / 'trainhall.db'}",
        viewers_per_user=10_000,
    )
    # As the coordinator itself is served.
    uvicorn.Server(server_config(create_app(settings))).run([socket.socket(fileno=fd)])


if __name__ == "__main__":
    main()
