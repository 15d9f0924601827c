"""Time from submitting a job to its first optimizer step, against `torchrun`.

    python -m benchmarks.jobs.submit [--rounds 7]

The job is digits on two CPU ranks. Trainhall's way is the real one: `trainhall server` and
`trainhall agent` run as they would all day, the job is submitted over REST, and the first step is
over when its point in the job's own loss says so. `torchrun` runs the same job written by hand, and
its time counts from its start to what rank 0 prints after its first step. They take turns, and
every job has ended before the next begins.
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.jobs.cluster import FINAL, cluster, wait_for
from benchmarks.report import Figure, report

PEER = Path(__file__).with_name("torchrun_digits.py")
WORLD_SIZE = 2
GOAL_RATIO = 4.0
GOAL_SECONDS = 0.3
SPEC = {
    "name": "first step",
    "task": {"name": "digits", "params": {"hidden": [64]}},
    "resources": {"workers": WORLD_SIZE, "device": "cpu"},
    "training": {"steps": 10, "global_batch_size": 64, "optimizer": "adamw"},
}


def trainhall_seconds(client: httpx.Client, spec: dict[str, Any] = SPEC) -> float:
    """Submit the job, and wait for its end; the seconds until its first step was over."""
    begun = time.time()
    job = client.post("/training/jobs", json=spec).raise_for_status().json()

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/training/jobs/{job['id']}").json()
        return found if found["state"] in FINAL else None

    job = wait_for("the job's end", ended, every=0.2)
    if job["state"] != "completed":
        raise SystemExit(f"the job is {job['state']}: {job['reason']}")

    def first_step() -> float | None:
        query: dict[str, str | int] = {"names": "loss", "from_step": 1, "to_step": 1}
        found = client.get(f"/metrics/jobs/{job['id']}", params=query).raise_for_status().json()
        times = [
            datetime.fromisoformat(point["time"]).timestamp()
            for series in found["series"]
            if series["rank"] is None
            for point in series["points"]
        ]
        return times[0] if times else None

    return wait_for("the first step's point", first_step) - begun


def torchrun_seconds() -> float:
    """Run the job by hand; the seconds until its first step was over."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    begun = time.time()
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORLD_SIZE}",
            f"--master-port={port}", str(PEER),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"^first_step (\S+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"torchrun's job failed:\n{done.stderr}")
    return float(found.group(1)) - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name, cluster(Path(name)) as api:
        # The first job waits for the warm parent, and the first torchrun reads from the disk.
        trainhall_seconds(api)
        torchrun_seconds()
        print("seconds to the first step")
        print("  round  trainhall   torchrun")
        for number in range(1, options.rounds + 1):
            rounds.append((trainhall_seconds(api), torchrun_seconds()))
            print("  {:5}{:11.3f}{:11.3f}".format(number, *rounds[-1]), flush=True)
    ours, peer = (statistics.median(column) for column in zip(*rounds, strict=True))
    report(
        Figure("torchrun", peer, "s"),
        Figure("submit to first step", ours, "s", at_most=GOAL_SECONDS),
        Figure("quickest", min(seconds for seconds, _ in rounds), "s"),
        Figure("ratio", peer / ours, at_least=GOAL_RATIO),
    )


if __name__ == "__main__":
    main()
