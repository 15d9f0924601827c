"""Step time of a job before, during and after a profile, and the stall at the profile's end.

    python -m benchmarks.jobs.profiling [--steps 20] [--rounds 5]

The job is a deep MLP on two CPU ranks, with steps of 20 ms and more. The steps before and after a
profile are as many as it has; the first step after one has the stall, and counts with neither.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import httpx

from benchmarks.jobs.cluster import cluster, wait_for
from benchmarks.report import Figure, report

DURING_RATIO = 1.10
OUTSIDE_RATIO = 1.02
STALL_SECONDS = 0.25
SPEC = {
    "name": "profile",
    "task": {"name": "digits", "params": {"hidden": [512] * 12}},
    "resources": {"workers": 2, "device": "cpu"},
    "training": {"steps": 1_000_000, "global_batch_size": 256},
}


def step_seconds(api: httpx.Client, job: str) -> dict[int, float]:
    """The seconds of each step so far."""
    query: dict[str, str | int] = {"names": "step_seconds", "max_points": 1_000_000}
    found = api.get(f"/metrics/jobs/{job}", params=query).raise_for_status().json()
    for series in found["series"]:
        if series["rank"] is None:
            return {point["step"]: point["value"] for point in series["points"]}
    return {}


def profile(api: httpx.Client, job: str, steps: int) -> tuple[list[float], float]:
    """Take a profile; return the median step before, during and after it, and its stall."""
    asked = api.post(f"/training/jobs/{job}/profile", json={"steps": steps}).raise_for_status()

    def ended() -> Any:
        items = api.get(f"/training/jobs/{job}/profiles").raise_for_status().json()["items"]
        found = next(each for each in items if each["id"] == asked.json()["id"])
        return found if found["state"] in ("completed", "failed") else None

    found = wait_for("the profile", ended)
    if found["state"] == "failed":
        raise SystemExit(f"the profile failed: {found['reason']}")
    first = found["first_step"]
    end = first + steps

    def measured() -> dict[int, float] | None:
        seconds = step_seconds(api, job)
        return seconds if max(seconds, default=0) > end + steps else None

    seconds = wait_for("the steps after it", measured)
    spans = (range(first - steps, first), range(first, end), range(end + 1, end + 1 + steps))
    medians = [statistics.median(seconds[step] for step in span) for span in spans]
    return medians, max(trace["stall_seconds"] for trace in found["traces"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows, stalls = [], []
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name, cluster(Path(name)) as api:
        job = api.post("/training/jobs", json=SPEC).raise_for_status().json()["id"]
        enough = 2 * options.steps
        wait_for("steps", lambda: max(step_seconds(api, job), default=0) > enough or None)
        print("median step in ms\n  round   before   during    after   stall")
        for number in range(1, options.rounds + 1):
            medians, stall = profile(api, job, options.steps)
            rows.append(medians)
            stalls.append(stall)
            row = "".join(f"{1000 * each:9.1f}" for each in medians)
            print(f"  {number:5}{row}{1000 * stall:8.0f}", flush=True)
        api.delete(f"/training/jobs/{job}").raise_for_status()
    before, during, after = (statistics.median(column) for column in zip(*rows, strict=True))
    report(
        Figure("step without a profile", 1000 * before, "ms"),
        Figure("ratio during a profile", during / before, at_most=DURING_RATIO),
        Figure("ratio after a profile", after / before, at_most=OUTSIDE_RATIO),
        Figure("stall at its end", statistics.median(stalls), "s", at_most=STALL_SECONDS),
    )


if __name__ == "__main__":
    main()
