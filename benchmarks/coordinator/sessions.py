"""Requests of 1,000 browsers that are logged in, beside those of one; and what they take to keep.

    python -m benchmarks.coordinator.sessions [--sessions 1000] [--rounds 3]

The coordinator runs in a process of its own. Each browser asks who it is and for the newest jobs,
in turn with the one; its credential is looked up again whenever the last look is over 5 s old. The
times are wall time of a request on a connection that is kept open.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Figure, report

PATHS = ("/api/v1/auth/me", "/api/v1/training/jobs?limit=20")
GOAL_RATIO = 2.0


@contextmanager
def coordinator(folder: Path) -> Iterator[tuple[str, int]]:
    """A coordinator that asks for login; its URL and process."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "trainhall.cli.main", "server", "--fd", str(listener.fileno()),
             "--data-dir", str(folder)],
            pass_fds=[listener.fileno()], stdout=subprocess.DEVNULL,
            env={**os.environ, "TRAINHALL_AUTH": "token", "HOME": str(folder)},
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        httpx.get(f"{url}/readyz", timeout=60, trust_env=False).raise_for_status()
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(30)


def log_in(client: httpx.Client, admin: dict[str, str]) -> dict[str, str]:
    """Log a browser in; return the header that its requests have from then on."""
    code = client.post("/api/v1/auth/codes", headers=admin, json={}).raise_for_status().json()
    reply = client.post("/api/v1/auth/link", json={"code": code["code"]}).raise_for_status()
    client.cookies.clear()
    return {"Cookie": reply.headers["set-cookie"].partition(";")[0]}


def ask(client: httpx.Client, browser: dict[str, str]) -> float:
    """Return the seconds that a browser's requests take."""
    began = time.perf_counter()
    for path in PATHS:
        client.get(path, headers=browser).raise_for_status()
    return (time.perf_counter() - began) / len(PATHS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    one: list[float] = []
    many: list[float] = []
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name:
        folder = Path(name)
        with (
            coordinator(folder / "data") as (url, pid),
            httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
        ):
            token = (folder / "data" / "admin.token").read_text().strip()
            admin = {"Authorization": f"Bearer {token}"}
            first = log_in(client, admin)
            for _ in range(200):
                ask(client, first)
            before = psutil.Process(pid).memory_info().rss
            browsers = [log_in(client, admin) for _ in range(options.sessions)]
            for _ in range(options.rounds):
                for browser in browsers:
                    many.append(ask(client, browser))
                    one.append(ask(client, first))
            grown = (psutil.Process(pid).memory_info().rss - before) / 1e3 / options.sessions
    print(f"one browser: median {statistics.median(one) * 1000:.2f} ms a request")
    print(f"{options.sessions:,} browsers: median {statistics.median(many) * 1000:.2f} ms")
    report(
        Figure(
            f"a request of one of {options.sessions:,} browsers, to one of a single browser",
            statistics.median(many) / statistics.median(one),
            at_most=GOAL_RATIO,
        ),
        Figure("growth of the coordinator's memory for each session", grown, "kB"),
    )


if __name__ == "__main__":
    main()
