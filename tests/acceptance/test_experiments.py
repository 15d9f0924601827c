"""A sweep of real jobs, whose coordinator is killed again and again."""

from functools import partial
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

RUNS = 6
SWEEP = {
    "name": "killed",
    "kind": "sweep",
    "job": {"name": "x", "task": {"name": "digits"}, "training": {"steps": 20}},
    "space": {"training.learning_rate": {"range": [0.001, 0.006], "step": 0.001}},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
    "parallel": 2,
}

SCRIPT = """
import trainhall as th

th.init(total_steps=27)
rate = th.parameters()["rate"]
state = th.checkpoint.load() or {"total": 0.0}
for step in range(th.checkpoint.step + 1, 28):
    state["total"] += rate
    th.report(total=state["total"], step=step)
    if th.should_stop():
        th.checkpoint.save(state, step=step)
        th.leave()
"""


# One kill on each database: the statements that start and promote runs are the same here and
# there, and are tested on both in tests/cluster/experiments.
@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_sweep_completes_though_its_coordinator_is_killed(cluster: Cluster) -> None:
    path = f"/experiments/{cluster.post('/experiments', json=SWEEP)['id']}"
    for ended in (0, 2, 4):
        eventually(
            f"{ended} runs to have ended",
            partial(_have_completed, cluster, path, ended),
            timeout=120,
        )
        cluster.coordinator.kill()
        cluster.start_coordinator()
    eventually("its end", lambda: cluster.get(path)["finished_at"], timeout=180)
    experiment = cluster.get(path)
    assert (experiment["state"], experiment["counts"]) == ("completed", {"completed": RUNS})
    trials = cluster.get(f"{path}/trials")["items"]
    assert all(0 <= trial["objective"] <= 1 for trial in trials)
    assert experiment["best"]["value"] == max(trial["objective"] for trial in trials)
    jobs = cluster.get("/training/jobs", params={"limit": 1000})["items"]
    own = [job["id"] for job in jobs if job["experiment"] is not None]
    assert sorted(own) == sorted(trial["job_id"] for trial in trials)


@pytest.mark.parametrize("killed_cluster", ["postgres"], indirect=True)
def test_early_stopping_survives_kills_of_the_coordinator(cluster: Cluster) -> None:
    sweep = {
        **SWEEP,
        "job": {"name": "x", "task": {"name": "digits"}},
        "space": {"training.learning_rate": {"range": [0.001, 0.009], "step": 0.001}},
        "early_stopping": {"asha": {"min_steps": 10, "max_steps": 90}},
    }
    path = f"/experiments/{cluster.post('/experiments', json=sweep)['id']}"
    for steps in (10, 60, 120):
        eventually(f"{steps} steps", partial(_have_taken, cluster, path, steps), timeout=120)
        cluster.coordinator.kill()
        cluster.start_coordinator()
    eventually("its end", lambda: cluster.get(path)["finished_at"], timeout=240)
    experiment = cluster.get(path)
    assert experiment["state"] == "completed"
    assert experiment["counts"] == {"completed": 1, "stopped": 8}
    # Each run has paused exactly at its rungs, and none was promoted beyond the others' share.
    assert experiment["steps"] == {"taken": 6 * 10 + 2 * 30 + 90, "in_full": 9 * 90}
    for trial in cluster.get(f"{path}/trials")["items"]:
        events = cluster.get(f"/training/jobs/{trial['job_id']}/events")["items"]
        promoted = [event["reason"] for event in events if event["code"] == "promoted"]
        assert len(set(promoted)) == len(promoted) == trial["rung"] - 1
        resumed = [
            event["data"].get("resumed_from") or 0
            for event in events
            if event["code"] == "rank_started"
        ]
        assert resumed == [0, 10, 30][: trial["rung"]]


@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_scripts_are_stopped_early_and_promoted(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sweep = {
        **SWEEP,
        "job": {"name": "x", "script": {"path": str(script)}, "parameters": {"rate": 1}},
        "space": {"parameters.rate": [1, 2, 3]},
        "objective": {"metric": "total", "goal": "max"},
        "early_stopping": {"asha": {"min_steps": 3, "max_steps": 27}},
    }
    path = f"/experiments/{cluster.post('/experiments', json=sweep)['id']}"
    eventually("its end", lambda: cluster.get(path)["finished_at"], timeout=120)
    trials = cluster.get(f"{path}/trials")["items"]
    assert [(trial["state"], trial["step"], trial["objective"]) for trial in trials] == [
        ("stopped", 3, 3.0), ("stopped", 3, 6.0), ("completed", 27, 81.0),
    ]  # fmt: skip
    assert cluster.get(path)["best"]["value"] == 81.0


def _have_taken(cluster: Cluster, path: str, steps: int) -> bool:
    return int(cluster.get(path)["steps"]["taken"]) >= steps


def _have_completed(cluster: Cluster, path: str, runs: int) -> bool:
    return int(cluster.get(path)["counts"].get("completed", 0)) >= runs
