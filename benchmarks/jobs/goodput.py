"""Share of time in steps that count while a rank dies once a minute.

    python -m benchmarks.jobs.goodput [--minutes 4] [--fault-every 60]

A job of two ranks at 20 steps a second saves every 50 steps; at random one of its ranks is ended
by SIGKILL. Goodput is the share of the time that no fault took. What a fault takes is the break in
the steps that count, with all that is done again, less what a step takes (the median of the job's
own). Beside it are the steps that count, all at that pace, in the whole time, which is less where
the machine has other work.
"""

import argparse
import random
import statistics
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.jobs.cluster import cluster, wait_for
from benchmarks.jobs.recovery import rank_processes, seconds_of
from benchmarks.report import Figure, report

GOAL_PERCENT = 95.0
NOTICED_SECONDS = 10.0
"""A break begins before so much time has passed since its fault."""
SPEC = {
    "name": "goodput",
    "task": {"name": "synthetic", "params": {"step_seconds": 0.05, "hidden": [8]}},
    "resources": {"workers": 2, "device": "cpu"},
    "training": {"steps": 10_000_000, "global_batch_size": 8},
    "checkpoint": {"every_steps": 50},
    "recovery": {"max_restarts": 1000},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--fault-every", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    faults: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name,
        cluster(Path(name)) as api,
    ):
        reply = api.post("/training/jobs", json=SPEC).raise_for_status()
        path = f"/training/jobs/{reply.json()['id']}"

        def job() -> dict[str, Any]:
            found: dict[str, Any] = api.get(path).raise_for_status().json()
            return found

        wait_for("the first checkpoint", lambda: True if job()["step"] > 60 else None)
        began = time.time()
        end = began + 60 * options.minutes
        fault = began + options.fault_every * chance.random()
        while (now := time.time()) < end:
            time.sleep(max(0.0, min(fault, end) - now))
            if time.time() >= fault:
                # Just between two attempts there is none to kill.
                ranks = wait_for("ranks", lambda: rank_processes(job()["id"]) or None)
                with suppress(psutil.NoSuchProcess):
                    chance.choice(ranks).kill()
                faults.append(time.time())
                # One in each span, at a random point of it.
                fault = began + options.fault_every * (len(faults) + chance.random())
        last = job()["step"]
        wait_for("steps behind the last fault", lambda: True if job()["step"] > last + 60 else None)
        query: dict[str, Any] = {"names": "loss", "max_points": 1_000_000}
        series = api.get(f"/metrics/jobs/{job()['id']}", params=query).json()["series"]
        attempts = job()["attempt"]
        api.delete(path).raise_for_status()
        wait_for("the end", lambda: True if job()["state"] == "cancelled" else None)
    times = sorted(seconds_of(point["time"]) for point in series[0]["points"])
    counted = [at for at in times if began <= at < end]
    pace = statistics.median(b - a for a, b in pairwise(counted))
    lost = [break_of(fault, times) - pace for fault in faults]
    span = end - began
    report(
        Figure("faults", len(faults)),
        Figure("attempts", attempts),
        Figure("a step", pace * 1000, "ms"),
        Figure("longest break", max(lost), "s"),
        Figure("goodput", 100 * (1 - sum(lost) / span), "%", at_least=GOAL_PERCENT),
        Figure("steps at the median's pace", 100 * len(counted) * pace / span, "%"),
    )


def break_of(fault: float, times: list[float]) -> float:
    """Seconds of the break in the steps that a fault made. The first step that ends behind it may
    be one whose gradients were exchanged before."""
    return max(b - a for a, b in pairwise(times) if b > fault and a < fault + NOTICED_SECONDS)


if __name__ == "__main__":
    main()
