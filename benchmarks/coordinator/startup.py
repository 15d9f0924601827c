"""Start-up time and idle memory of a coordinator, against a bare application.

    python -m benchmarks.coordinator.startup [--rounds 5]

Both processes get a socket that listens already, and are asked at once: the first answer comes when
they serve. The coordinator does all it does at a start: it reads its settings, opens and migrates a
new database, and begins to reconcile. The bare application is FastAPI with one route, which asks
SQLAlchemy for a row of a table that it made at its start. The goals are 1.5 s and 120 MB.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Figure, report

GOAL_SECONDS = 1.5
GOAL_MB = 120.0
IDLE_SECONDS = 1.0
BARE = Path(__file__).with_name("bare_app.py")


@dataclass
class Start:
    seconds: float
    """From the start of the process to its first answer."""
    cpu_seconds: float
    """What it computed until it was idle."""
    rss_mb: float
    """Resident memory while idle."""


def start(command: Callable[[str, int], list[str]], path: str) -> Start:
    """Start a server in an empty folder, ask it once, and look at it a moment later."""
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        began = time.perf_counter()
        process = subprocess.Popen(
            command(folder, listener.fileno()), pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
        try:
            httpx.get(url, timeout=60, trust_env=False).raise_for_status()
            seconds = time.perf_counter() - began
            time.sleep(IDLE_SECONDS)
            seen = psutil.Process(process.pid)
            times = seen.cpu_times()
            return Start(seconds, times.user + times.system, seen.memory_info().rss / 1e6)
        finally:
            process.terminate()
            process.wait(30)


def coordinator(folder: str, fd: int) -> list[str]:
    return [sys.executable, "-m", "trainhall.cli.main", "server", "--fd", str(fd),
            "--data-dir", folder]  # fmt: skip


def bare(folder: str, fd: int) -> list[str]:
    return [sys.executable, str(BARE), folder, str(fd)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to the first answer, and memory.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ours: list[Start] = []
    theirs: list[Start] = []
    for number in range(rounds):
        # In turn, so that both meet the same moods of the machine.
        ours.append(start(coordinator, "/readyz"))
        theirs.append(start(bare, "/readyz"))
        print(
            f"round {number + 1}: coordinator {ours[-1].seconds:.2f} s, {ours[-1].rss_mb:.0f} MB; "
            f"bare {theirs[-1].seconds:.2f} s, {theirs[-1].rss_mb:.0f} MB",
            flush=True,
        )

    def median(of: list[Start], figure: str) -> float:
        return float(statistics.median(getattr(one, figure) for one in of))

    ready, bare_ready = median(ours, "seconds"), median(theirs, "seconds")
    cpu, bare_cpu = median(ours, "cpu_seconds"), median(theirs, "cpu_seconds")
    idle, bare_idle = median(ours, "rss_mb"), median(theirs, "rss_mb")
    report(
        Figure("bare application ready", bare_ready, "s"),
        Figure("coordinator ready", ready, "s", at_most=GOAL_SECONDS),
        Figure("ratio", ready / bare_ready),
        Figure("time on the processor until ready", cpu, "s"),
        Figure("ratio of it", cpu / bare_cpu),
        Figure("bare application idle", bare_idle, "MB"),
        Figure("coordinator idle", idle, "MB", at_most=GOAL_MB),
        Figure("ratio of memory", idle / bare_idle),
    )


if __name__ == "__main__":
    main()
