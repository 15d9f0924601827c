"""Steps that a sweep with early stopping takes, and what it finds, compared with the whole grid.

    python -m benchmarks.jobs.early_stopping [--seeds 5]

27 configurations of the digits task, in an order that depends on the seed, once in full and once
under ASHA with factor 3. A seed is the first of the draws and that of every run, so both sweeps
train the same models. No step is taken twice: each attempt begins where the one before it paused.
While a trial waits, or can be promoted, no device is free for longer than a pass of the reconciler
and the start of a rank. A pass comes at the latest after a tick; on a busy machine it takes as long
as devices of the grid are free between two trials.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.jobs.cluster import cluster
from benchmarks.report import Figure, report
from trainhall.cluster.experiments.asha import RungRun, next_promotion, trials_of
from trainhall.cluster.experiments.spec import AshaSpec
from trainhall.cluster.lifecycle.states import TrialState
from trainhall.cluster.options import ClusterOptions

GOAL_RATIO = 0.15
POINT = 0.01
MIN_STEPS, MAX_STEPS = 60, 1620
DEVICES = 2
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
    "parallel": DEVICES,
}
ASHA = {"asha": {"min_steps": MIN_STEPS, "max_steps": MAX_STEPS, "factor": 3}}


@dataclass(frozen=True)
class Tenure:
    """The time from the allocation of a device to a trial until the device is free again."""

    trial: int
    device: int
    begun: datetime
    stepping: datetime
    """The rank has started."""
    ended: datetime
    result: float | None
    """At the rung where it paused, or at the end."""
    is_last: bool
    """The trial has completed."""


@dataclass(frozen=True)
class Free:
    """The time of a device between two trials."""

    waiting: float
    """Seconds until it was allocated."""
    starting: float
    """Seconds from then on until the rank had started."""

    @property
    def seconds(self) -> float:
        return self.waiting + self.starting


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    ratios, near, twice = [], 0, 0
    free: list[Free] = []
    of_grid: list[Free] = []
    print("seed   best of grid   best of ASHA   steps of grid   steps of ASHA   longest free")
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name,
        cluster(Path(name), slots=DEVICES) as api,
    ):
        for seed in range(options.seeds):
            training = {**SWEEP["job"]["training"], "steps": MAX_STEPS}
            full = {**SWEEP, "job": {**SWEEP["job"], "training": training}}
            grid = run(api, {**full, "name": f"grid {seed}", "seed": seed})
            asha = run(api, {**SWEEP, "name": f"asha {seed}", "seed": seed, "early_stopping": ASHA})
            best = [each["best"]["value"] for each in (grid, asha)]
            taken = 27 * MAX_STEPS, asha["steps"]["taken"]
            in_seed = free_times(list(tenures_of(api, asha["id"])))
            longest = max(each.seconds for each in in_seed)
            print(
                f"{seed:4} {best[0]:14.4f} {best[1]:14.4f} {taken[0]:15,} {taken[1]:15,} "
                f"{longest:12.2f} s",
                flush=True,
            )
            free += in_seed
            of_grid += free_times(list(tenures_of(api, grid["id"])))
            ratios.append(taken[1] / taken[0])
            near += best[1] >= best[0] - POINT
            twice += steps_taken_twice(api, asha["id"])
    slowest_start = max(each.starting for each in free)
    a_pass = max(ClusterOptions().tick_seconds, *(each.waiting for each in of_grid))
    report(
        Figure("steps of ASHA over those of the grid", max(ratios), at_most=GOAL_RATIO),
        Figure("seeds within a point of the grid's best", near, at_least=options.seeds * 0.8),
        Figure("steps taken twice", twice, at_most=0),
        Figure("starts and promotions of trials", len(free)),
        Figure("slowest start of a rank", slowest_start, "s"),
        Figure("longest that a pass took to come", a_pass, "s"),
        Figure("longest until a free device was allocated", max(e.waiting for e in free), "s"),
        Figure(
            "longest that a device was free while a trial waited",
            max(each.seconds for each in free), "s", at_most=a_pass + slowest_start,
        ),
        Figure("the same, in the median", median(each.seconds for each in free), "s"),
    )  # fmt: skip


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


def tenures_of(api: httpx.Client, experiment: str) -> Iterator[Tenure]:
    """Yield the tenures of a sweep that has ended, one for each attempt."""
    trials = api.get(f"/experiments/{experiment}/trials").raise_for_status().json()["items"]
    for trial in trials:
        job = f"/training/jobs/{trial['job_id']}"
        attempts = api.get(f"{job}/attempts").raise_for_status().json()["items"]
        events = api.get(f"{job}/events", params={"limit": 1000}).raise_for_status().json()["items"]
        started = {e["attempt"]: e["time"] for e in events if e["code"] == "rank_started"}
        at_end = {"step": MAX_STEPS, "value": trial["objective"]}
        for attempt, result in zip(attempts, trial["results"] or [at_end], strict=True):
            ((rank,),) = (host["ranks"] for host in attempt["allocation"])
            yield Tenure(
                trial["number"],
                rank["device_index"],
                datetime.fromisoformat(attempt["started_at"]),
                datetime.fromisoformat(started[attempt["attempt"]]),
                datetime.fromisoformat(attempt["finished_at"]),
                result["value"],
                is_last=result["step"] == MAX_STEPS,
            )


def free_times(tenures: Sequence[Tenure]) -> list[Free]:
    """Return how long the device of each tenure had been free, while some trial was waiting to
    start or could be promoted."""
    runs = {each.trial: RungRun((each.trial, 1), TrialState.PENDING) for each in tenures}
    begin = min(each.begun for each in tenures)
    free_since: dict[int, datetime | None] = dict.fromkeys(range(DEVICES), begin)
    found = []
    moments = [(each.begun, True, each) for each in tenures]
    moments += [(each.ended, False, each) for each in tenures]
    for time_, begins, tenure in sorted(moments, key=lambda moment: moment[:2]):
        run = runs[tenure.trial]
        if begins:
            since = free_since.pop(tenure.device) or time_
            found.append(
                Free(_seconds(since, tenure.begun), _seconds(tenure.begun, tenure.stepping))
            )
            runs[tenure.trial] = replace(run, state=TrialState.STARTED)
        else:
            state = TrialState.COMPLETED if tenure.is_last else TrialState.WAITING
            results = (*run.results, tenure.result)
            runs[tenure.trial] = replace(run, state=state, results=results)
            free_since[tenure.device] = None
        has_work = _has_work(runs)
        free_since = {
            device: (since or time_) if has_work else None for device, since in free_since.items()
        }
    return found


def _has_work(runs: Mapping[int, RungRun]) -> bool:
    """Return whether a trial waits to start, or can be promoted."""
    if any(run.state is TrialState.PENDING for run in runs.values()):
        return True
    asha = AshaSpec.model_validate(ASHA["asha"])
    trials = trials_of(runs.values(), lower_is_better=False)
    return next_promotion(trials, rungs=len(asha.rungs), factor=asha.factor) is not None


def _seconds(begun: datetime, ended: datetime) -> float:
    return (ended - begun).total_seconds()


if __name__ == "__main__":
    main()
