"""Rate at which a job's outputs are stored, against `cp -r` on the same disk.

    python -m benchmarks.jobs.outputs [--mebibytes 512] [--files 4] [--small 10000] [--rounds 3]

A script writes files to its folder of outputs and ends; the job is `completed` once the coordinator
has them: hashed by the agent, sent over loopback, hashed again, durable. The peer is `cp -r` of the
same files and `sync` of the copies. They take turns: with large files, and with many of 1 KiB.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import httpx

from benchmarks.jobs.cluster import FINAL, cluster, wait_for
from benchmarks.report import Figure, report

GOAL_RATIO = 0.25
GOAL_SMALL_RATIO = 0.05
SMALL_BYTES = 1024
SCRIPT = """
import os, sys, time
files, size = int(sys.argv[1]), int(sys.argv[2])
for number in range(files):
    with open(f"{os.environ['TRAINHALL_OUTPUTS']}/{number}.bin", "wb") as file:
        for at in range(0, size, 2**20):
            file.write(os.urandom(min(2**20, size - at)))
        file.flush()
        if size >= 2**20:
            os.fsync(file.fileno())
print("written at", time.time(), flush=True)
"""


def stored(client: httpx.Client, script: Path, files: int, size: int) -> float:
    """Seconds from the script's last write of so many bytes to each file to the end of its job."""
    arguments = [str(files), str(size)]
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


def copied(folder: Path, files: int, size: int) -> float:
    """Seconds of `cp -r` and `sync`."""
    begin, end = folder / "from", folder / "to"
    begin.mkdir()
    for number in range(files):
        block = os.urandom(min(2**20, size))
        with (begin / f"{number}.bin").open("wb") as file:
            for _ in range(size // len(block)):
                file.write(block)
    subprocess.run(["sync"], check=True)
    started = time.perf_counter()
    subprocess.run(["cp", "-r", begin, end], check=True)
    subprocess.run(["sync", "--file-system", end], check=True)
    seconds = time.perf_counter() - started
    subprocess.run(["rm", "-r", begin, end], check=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    of_large = (options.files, options.mebibytes * 2**20 // options.files)
    of_small = (options.small, SMALL_BYTES)
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as client:
        script = Path(name, "write.py")
        script.write_text(SCRIPT)
        stored(client, script, *of_large)  # the first one imports and opens connections
        large = [
            (stored(client, script, *of_large), copied(Path(name), *of_large))
            for _ in range(options.rounds)
        ]
        small = [
            (stored(client, script, *of_small), copied(Path(name), *of_small))
            for _ in range(options.rounds)
        ]
    mebibytes = statistics.median(options.mebibytes / seconds for seconds, _ in large)
    files = statistics.median(options.small / seconds for seconds, _ in small)
    report(
        Figure("outputs stored", mebibytes, "MiB/s"),
        Figure("rate of cp, large files", _ratio(large), "times", at_least=GOAL_RATIO),
        Figure("small outputs stored", files, "files/s"),
        Figure("rate of cp, small files", _ratio(small), "times", at_least=GOAL_SMALL_RATIO),
    )


def _ratio(seconds: Sequence[tuple[float, float]]) -> float:
    """Return our rate in that of the peer, from pairs of our time and the peer's."""
    return statistics.median(peer / ours for ours, peer in seconds)


if __name__ == "__main__":
    main()
