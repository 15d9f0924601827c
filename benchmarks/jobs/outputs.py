"""Rate at which a job's outputs are stored, against `cp` on the same disk.

    python -m benchmarks.jobs.outputs [--mebibytes 512] [--files 4] [--rounds 3]

A script writes files to its folder of outputs and ends; the job is `completed` once the coordinator
has them: hashed by the agent, sent over loopback, hashed again, durable. The peer is `cp` of the
same files and `sync` of the copies. They take turns.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

import httpx

from benchmarks.jobs.cluster import FINAL, cluster, wait_for
from benchmarks.report import Figure, report

GOAL_RATIO = 0.25
SCRIPT = """
import os, sys, time
size, files = int(sys.argv[1]), int(sys.argv[2])
for number in range(files):
    with open(f"{os.environ['TRAINHALL_OUTPUTS']}/{number}.bin", "wb") as file:
        for _ in range(size // files):
            file.write(os.urandom(2**20))
        file.flush()
        os.fsync(file.fileno())
print("written at", time.time(), flush=True)
"""


def stored(client: httpx.Client, script: Path, mebibytes: int, files: int) -> float:
    """Seconds from the script's last write to the end of its job."""
    arguments = [str(mebibytes), str(files)]
    spec = {"name": "outputs", "script": {"path": str(script), "args": arguments}}
    job = client.post("/training/jobs", json=spec).raise_for_status().json()["id"]

    def end() -> dict[str, str] | None:
        found: dict[str, str] = client.get(f"/training/jobs/{job}").json()
        return found if found["state"] in FINAL else None

    done = wait_for("the job's end", end)
    if done["state"] != "completed":
        raise SystemExit(f"the job {done['state']}: {done['reason']}")
    lines = client.get(f"/training/jobs/{job}/logs").json()["items"]
    (written,) = re.findall(r"written at ([\d.]+)", "\n".join(line["text"] for line in lines))
    return datetime.fromisoformat(done["finished_at"]).timestamp() - float(written)


def copied(folder: Path, mebibytes: int, files: int) -> float:
    """Seconds of `cp` and `sync`."""
    begin, end = folder / "from", folder / "to"
    begin.mkdir()
    for number in range(files):
        block = os.urandom(2**20)
        with (begin / f"{number}.bin").open("wb") as file:
            for _ in range(mebibytes // files):
                file.write(block)
    subprocess.run(["sync"], check=True)
    started = time.perf_counter()
    subprocess.run(["cp", "-r", begin, end], check=True)
    subprocess.run(["sync", *sorted(end.iterdir())], check=True)
    seconds = time.perf_counter() - started
    subprocess.run(["rm", "-r", begin, end], check=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    size = (options.mebibytes, options.files)
    ours, peers = [], []
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as client:
        script = Path(name, "write.py")
        script.write_text(SCRIPT)
        for number in range(options.rounds + 1):
            seconds, copy = stored(client, script, *size), copied(Path(name), *size)
            if number:  # the first one imports and opens connections
                ours.append(options.mebibytes / seconds)
                peers.append(options.mebibytes / copy)
                print(f"outputs {ours[-1]:,.0f} MiB/s, cp {peers[-1]:,.0f} MiB/s", flush=True)
    ratios = [mine / peer for mine, peer in zip(ours, peers, strict=True)]
    report(
        Figure("outputs stored", statistics.median(ours), "MiB/s"),
        Figure("rate of cp", statistics.median(ratios), "times", at_least=GOAL_RATIO),
    )


if __name__ == "__main__":
    main()
