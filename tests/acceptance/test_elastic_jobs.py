"""An elastic job through the real engine: 4 → 3 → 4 workers in place, and still the same bits."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.holds import Gate, free_task
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

STEPS = 400
SERIES = ("chain_link", "chain_samples", "loss", "gradient_norm")


def spec(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "elastic",
        "task": task,
        "training": {
            "steps": STEPS,
            "global_batch_size": 32,
            "gradient_clip": 0.1,
            "reproducible": True,
            "seed": 3,
        },
        **more,
    }


@pytest.fixture
def four_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("TRAINHALL_GROW_AFTER", "0.5")
    with running_cluster(tmp_path / "cluster", slots=4) as running:
        yield running


def pids(cluster: Cluster, job: str) -> set[int]:
    return {process.pid for process in cluster.rank_processes(job)}


def regrouped(cluster: Cluster, job: str, generation: int, workers: int) -> set[int]:
    """The job's processes once it takes steps again in this generation."""

    def has() -> bool:
        now = cluster.job(job)
        assert now["state"] == "running", cluster.story(job)
        return bool(now["generation"] >= generation and now["world_size"] == workers)

    eventually(f"{workers} workers in generation {generation}", has, timeout=60)
    eventually("the ranks", lambda: len(pids(cluster, job)) == workers, timeout=60)
    cluster.wait_for_step(job, cluster.job(job)["step"] + 10)
    return pids(cluster, job)


def test_elastic_job_resizes_in_place_bit_exactly(four_slots: Cluster, gate: Gate) -> None:
    cluster = four_slots
    resources = {"min_workers": 3, "max_workers": 4}
    job = cluster.submit(spec(gate.task("synthetic", steps=STEPS), resources=resources))
    cluster.wait_for_step(job, 5)
    four = pids(cluster, job)
    assert len(four) == 4

    other = cluster.submit(spec(gate.task("synthetic"), priority=10, resources={"workers": 1}))
    three = regrouped(cluster, job, 2, 3)
    assert three < four, cluster.story(job)
    cluster.request("DELETE", f"/training/jobs/{other}")
    cluster.wait_for(other, "cancelled")
    again = regrouped(cluster, job, 3, 4)
    assert three < again

    killed = max(again - three)
    (victim,) = (p for p in cluster.rank_processes(job) if p.pid == killed)
    victim.send_signal(signal.SIGKILL)
    last = regrouped(cluster, job, 4, 4)
    assert again - {killed} < last
    gate.open()
    done = cluster.wait_for(job, "completed", timeout=120)
    assert (done["attempt"], done["generation"]) == (1, 4)
    (attempt,) = cluster.get(f"/training/jobs/{job}/attempts")["items"]
    assert [g["world_size"] for g in attempt["generations"]] == [4, 3, 4, 4]

    whole = cluster.submit(spec(free_task("synthetic"), resources={"workers": 2}))
    cluster.wait_for(whole, "completed", timeout=120)
    for name in SERIES:
        points = cluster.points(job, name)
        assert [step for step, _ in points] == list(range(1, STEPS + 1))
        assert points == cluster.points(whole, name)
    assert cluster.points(job, "chain_weights")[-1] == cluster.points(whole, "chain_weights")[-1]
