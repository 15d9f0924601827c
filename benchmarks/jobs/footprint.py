"""Processor time and memory of an agent and an idle coordinator.

    python -m benchmarks.jobs.footprint [--seconds 30] [--ranks 8] [--interval 0.1]

A coordinator is looked at before anything is submitted. Then one job of 8 ranks takes 10 steps a
second (`paced_task.py`), and the agent, without its warm parent, and the coordinator are looked at
for so long. The figures count where that rate was reached. Beside it is what a process of the same
interpreter costs that does nothing but wake up as often.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil

from benchmarks.jobs.cluster import cluster, wait_for
from benchmarks.report import Figure, report

STEPS_SHARE = 0.98
"""Of the steps that are wanted: figures of a job that takes fewer say nothing."""
AGENT_CORE_PERCENT = 1.0
AGENT_MEGABYTES = 100.0
COORDINATOR_MEGABYTES = 150.0
_SETTLE_SECONDS = 5.0
_IDLE = """
import asyncio, sys

async def wake():
    while True:
        await asyncio.sleep(float(sys.argv[1]))

asyncio.run(wake())
"""


def spec(ranks: int, interval: float) -> dict[str, object]:
    return {
        "name": "footprint",
        "task": {"name": "paced_task:Paced", "params": {"step_seconds": interval, "hidden": [8]}},
        "resources": {"workers": ranks, "device": "cpu"},
        "training": {"steps": 1_000_000, "global_batch_size": ranks},
    }


def process_of(command: str) -> psutil.Process:
    """The one of Trainhall's processes that this one started for a command."""
    for child in psutil.Process().children():
        if command in child.cmdline():
            return child
    raise SystemExit(f"there is no process of `trainhall {command}`")


def core_percent(processes: list[psutil.Process], seconds: float) -> list[float]:
    """Of one core, user and system, during so many seconds."""
    began = [spent(process) for process in processes]
    start = time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - start
    return [
        100 * (spent(process) - before) / span
        for process, before in zip(processes, began, strict=True)
    ]


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--interval", type=float, default=0.1, help="seconds of a step")
    options = parser.parse_args()
    # The ranks find the task here; they inherit it from the agent.
    found = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = here if not found else here + os.pathsep + found
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name,
        cluster(Path(name), slots=options.ranks) as api,
        subprocess.Popen([sys.executable, "-c", _IDLE, str(options.interval)]) as floor,
    ):
        try:
            agent, server = process_of("agent"), process_of("server")
            time.sleep(_SETTLE_SECONDS)
            idle = megabytes(server)
            reply = api.post("/training/jobs", json=spec(options.ranks, options.interval))
            job = reply.raise_for_status().json()["id"]
            wait_for("the job's steps", lambda: True if step(api, job) > 20 else None)
            looked = [agent, server, psutil.Process(floor.pid)]
            time.sleep(_SETTLE_SECONDS)
            before, began = step(api, job), time.monotonic()
            used = core_percent(looked, options.seconds)
            rate = (step(api, job) - before) / (time.monotonic() - began)
            held = [megabytes(process) for process in looked]
            api.delete(f"/training/jobs/{job}").raise_for_status()
            wait_for(
                "the job's end",
                lambda: True if state(api, job) == "cancelled" else None,
            )
        finally:
            floor.kill()
    report(
        Figure("idle coordinator", idle, "MB", at_most=COORDINATOR_MEGABYTES),
        Figure("steps a second", rate, at_least=STEPS_SHARE / options.interval),
        Figure("agent", used[0], "% of a core", at_most=AGENT_CORE_PERCENT),
        Figure("agent's memory", held[0], "MB", at_most=AGENT_MEGABYTES),
        Figure("coordinator meanwhile", used[1], "% of a core"),
        Figure("coordinator's memory meanwhile", held[1], "MB"),
        Figure("a process that only wakes up", used[2], "% of a core"),
        Figure("its memory", held[2], "MB"),
    )


def step(api: httpx.Client, job: str) -> int:
    return int(api.get(f"/training/jobs/{job}").raise_for_status().json()["step"])


def state(api: httpx.Client, job: str) -> str:
    return str(api.get(f"/training/jobs/{job}").raise_for_status().json()["state"])


if __name__ == "__main__":
    main()
