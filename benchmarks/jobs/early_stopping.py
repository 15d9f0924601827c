"""Steps that a sweep with early stopping takes, and what it finds, compared with the whole grid.

    python -m benchmarks.jobs.early_stopping [--seeds 5]

27 configurations of the digits task, in an order that depends on the seed, once in full and once
under ASHA with factor 3. A seed is the first of the draws and that of every run, so both sweeps
train the same models. No step is taken twice: each attempt begins where the one before it paused.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.jobs.cluster import cluster
from benchmarks.report import Figure, report

GOAL_RATIO = 0.15
POINT = 0.01
MIN_STEPS, MAX_STEPS = 60, 1620
SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "job": {
        "name": "digits",
        "task": {"name": "digits"},
        "resources": {"workers": 1, "device": "cpu"},
        "training": {"optimizer": "sgd", "evaluate_every_steps": MIN_STEPS},
        "checkpoint": {"keep_latest": 1},
    },
    "space": {
        "training.learning_rate": [0.003, 0.03, 0.3],
        "training.global_batch_size": [16, 64, 256],
        "task.params.hidden": [[16], [64], [64, 64]],
    },
    "method": "random",
    "trials": 27,
    "objective": {"metric": "eval_accuracy", "goal": "max"},
    "parallel": 2,
}
ASHA = {"asha": {"min_steps": MIN_STEPS, "max_steps": MAX_STEPS, "factor": 3}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    ratios, near, twice = [], 0, 0
    print("seed   best of grid   best of ASHA   steps of grid   steps of ASHA")
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name,
        cluster(Path(name)) as api,
    ):
        for seed in range(options.seeds):
            training = {**SWEEP["job"]["training"], "steps": MAX_STEPS}
            full = {**SWEEP, "job": {**SWEEP["job"], "training": training}}
            grid = run(api, {**full, "name": f"grid {seed}", "seed": seed})
            asha = run(api, {**SWEEP, "name": f"asha {seed}", "seed": seed, "early_stopping": ASHA})
            best = [each["best"]["value"] for each in (grid, asha)]
            taken = 27 * MAX_STEPS, asha["steps"]["taken"]
            print(
                f"{seed:4} {best[0]:14.4f} {best[1]:14.4f} {taken[0]:15,} {taken[1]:15,}",
                flush=True,
            )
            ratios.append(taken[1] / taken[0])
            near += best[1] >= best[0] - POINT
            twice += steps_taken_twice(api, asha["id"])
    report(
        Figure("steps of ASHA over those of the grid", max(ratios), at_most=GOAL_RATIO),
        Figure("seeds within a point of the grid's best", near, at_least=options.seeds * 0.8),
        Figure("steps taken twice", twice, at_most=0),
    )


def run(api: httpx.Client, sweep: dict[str, Any]) -> dict[str, Any]:
    """Run a sweep to its end."""
    reply = api.post("/experiments", json=sweep).raise_for_status()
    found: dict[str, Any] = reply.json()
    while found["finished_at"] is None:
        time.sleep(0.5)
        found = api.get(f"/experiments/{found['id']}").raise_for_status().json()
    return found


def steps_taken_twice(api: httpx.Client, experiment: str) -> int:
    """Return how many steps attempts took that attempts before them had taken."""
    twice = 0
    trials = api.get(f"/experiments/{experiment}/trials").raise_for_status().json()["items"]
    for trial in trials:
        path = f"/training/jobs/{trial['job_id']}/events"
        reached = 0
        for event in api.get(path, params={"limit": 1000}).raise_for_status().json()["items"]:
            if event["code"] == "rank_started":
                twice += max(0, reached - (event["data"].get("resumed_from") or 0))
            elif event["code"] == "rank_paused":
                reached = event["data"]["step"]
    return twice


if __name__ == "__main__":
    main()
