"""A sweep of real jobs, whose coordinator is killed again and again."""

from functools import partial

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


def _have_completed(cluster: Cluster, path: str, runs: int) -> bool:
    return int(cluster.get(path)["counts"].get("completed", 0)) >= runs
