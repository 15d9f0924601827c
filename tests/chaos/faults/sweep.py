"""Sweeps whose coordinator dies: no run is lost or started twice, and no step is taken twice."""

import time
from collections import defaultdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from chaos.clusters import PATIENT, ChaosCluster
from chaos.jobs import ledger_of, script
from chaos.stage import Play
from support.waiting import eventually

TRIALS = 18
RUNGS = (4, 12, 36)
_BETWEEN_SECONDS = 1.5
"""Kills are at most that far apart: runs of the sweep begin, pause and are promoted meanwhile."""

_STEPS = """
import os
import trainhall as th

th.init(total_steps={steps}, join=False)
value = th.parameters()["value"]
th.checkpoint.load()
for step in range(th.checkpoint.step + 1, {steps} + 1):
    with open({ledger!r}, "a") as ledger:
        ledger.write(f"{{os.environ['TRAINHALL_JOB_ID']}} {{step}}\\n")
    th.report(value=value, step=step)
    if th.should_stop():
        th.checkpoint.save({{"step": step}}, step=step)
        th.leave()
"""


def killed_coordinator_of_a_sweep(play: Play) -> None:
    """Kill the coordinator again and again during a sweep: its runs are as if nothing was."""
    report, folder = play.report, play.folder
    with play.stage.cluster(PATIENT) as cluster:
        names = (f"sweep {number}" for number in count(1))
        sweeps = [_create(cluster, next(names), folder)]
        for _ in play.times():
            time.sleep(play.chance.uniform(0, _BETWEEN_SECONDS))  # where in the sweep it happens
            if _has_ended(cluster, sweeps[-1]):
                sweeps.append(_create(cluster, next(names), folder))
            cluster.coordinator.kill()
            report.inject("coordinator killed by SIGKILL during a sweep")
            cluster.start_coordinator()
        for sweep in sweeps:
            eventually("its end", partial(_has_ended, cluster, sweep), timeout=300)
            _check(play, cluster, sweep, _steps(folder))


def _has_ended(cluster: ChaosCluster, sweep: str) -> bool:
    return cluster.get(sweep)["finished_at"] is not None


def _create(cluster: ChaosCluster, name: str, folder: Path) -> str:
    text = _STEPS.format(steps=RUNGS[-1], ledger=str(ledger_of(folder)))
    sweep = {
        "name": name,
        "kind": "sweep",
        "job": {**script(folder, "sweep", text), "parameters": {"value": 0}},
        "space": {"parameters.value": list(range(TRIALS))},
        "method": "grid",
        "objective": {"metric": "value", "goal": "max"},
        "early_stopping": {"asha": {"min_steps": RUNGS[0], "max_steps": RUNGS[-1]}},
        "parallel": 4,
    }
    reply = cluster.post("/experiments", json=sweep, headers={"Idempotency-Key": name})
    return f"/experiments/{reply['id']}"


def _steps(folder: Path) -> dict[str, list[int]]:
    """The steps that each job took, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in ledger_of(folder).read_text().splitlines():
        job, step = line.split()
        found[job].append(int(step))
    return found


def _check(play: Play, cluster: ChaosCluster, sweep: str, steps: dict[str, list[int]]) -> None:
    report = play.report
    view = cluster.get(sweep)
    report.check("a sweep completed", view["state"] == "completed", view)
    trials: list[Any] = cluster.everything(f"{sweep}/trials")
    values = sorted(trial["values"]["parameters.value"] for trial in trials)
    report.check("each trial was started once", values == list(range(TRIALS)), values)
    for trial in trials:
        took = steps[trial["job_id"]]
        expected = list(range(1, RUNGS[trial["rung"] - 1] + 1))
        report.check("each run took each step up to its rung once", took == expected, (took, trial))
    best = view["best"]["values"]
    report.check("the best trial won", best == {"parameters.value": TRIALS - 1}, best)
