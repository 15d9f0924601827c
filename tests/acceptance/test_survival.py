"""Nothing dies with the coordinator or the agent: killed, they come back, and nobody notices."""

import signal
from pathlib import Path

import psutil
import pytest
from support.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

LINES = 1000
COUNTING_SCRIPT = f"""
import os, sys, time
rank = os.environ["RANK"]
for i in range({LINES}):
    print(f"rank {{rank}} line {{i}}", flush=True)
    time.sleep(0.01)
"""


def paced_job(steps: int = 300, **training: object) -> dict[str, object]:
    """A job of two ranks that takes about `steps` / 50 seconds."""
    return {
        "name": "paced",
        "task": {"name": "synthetic", "params": {"step_seconds": 0.02}},
        "resources": {"workers": 2},
        "training": {"steps": steps, "global_batch_size": 32, **training},
        "checkpoint": {"every_steps": 25},
    }


def counting_job(folder: Path) -> dict[str, object]:
    script = folder / "count.py"
    script.write_text(COUNTING_SCRIPT)
    return {
        "name": "counting",
        "script": {"path": str(script)},
        "resources": {"workers": 2},
    }


def kill_agent(cluster: Cluster) -> None:
    cluster.agent.kill()
    cluster.agent.start()


def kill_coordinator(cluster: Cluster) -> None:
    cluster.coordinator.kill()
    cluster.start_coordinator()


def kill_both(cluster: Cluster) -> None:
    cluster.agent.kill()
    cluster.coordinator.kill()
    cluster.start_coordinator()
    cluster.agent.start()


def shut_both_down_for_an_upgrade(cluster: Cluster) -> None:
    cluster.agent.stop()
    cluster.coordinator.stop()
    cluster.start_coordinator()
    cluster.agent.start()


KILLS = [kill_agent, kill_coordinator, kill_both, shut_both_down_for_an_upgrade]


@pytest.mark.parametrize("kill", KILLS)
def test_ranks_metrics_and_lines_outlive_a_kill(cluster: Cluster, kill, tmp_path: Path) -> None:
    steps = 600
    job = cluster.submit(paced_job(steps))
    cluster.wait_for_step(job, 40)
    writing = cluster.submit(counting_job(tmp_path))
    eventually("output", lambda: "line 50" in cluster.log_text(writing, 0))
    both = (job, writing)
    ranks = [[p.pid for p in cluster.rank_processes(each)] for each in both]
    assert [len(pids) for pids in ranks] == [2, 2]

    kill(cluster)

    # Told before anything else: a job that ended meanwhile would prove nothing.
    assert [[p.pid for p in cluster.rank_processes(each)] for each in both] == ranks
    seen = cluster.job(job)["step"]
    cluster.wait_for_step(job, seen + 40)
    for each in both:
        assert cluster.wait_for(each, "completed")["attempt"] == 1
    for rank in (None, 0, 1):
        assert [s for s, _ in cluster.points(job, "step_seconds", rank)] == list(
            range(1, steps + 1)
        )
    assert [s for s, _ in cluster.points(job, "loss")] == list(range(1, steps + 1))
    for rank in range(2):
        expected = [f"rank {rank} line {i}" for i in range(LINES)]
        got = eventually(
            f"the whole output of rank {rank}",
            lambda rank=rank, expected=expected: (
                (lines := cluster.log_text(writing, rank).splitlines()) == expected and lines
            ),
        )
        assert got == expected


def test_an_acknowledged_submission_survives_and_runs_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    script = tmp_path / "once.py"
    script.write_text(
        f"import os\nwith open({str(ledger)!r}, 'a') as f: f.write(os.environ['RANK'] + '\\n')\n"
    )
    spec = {"name": "once", "script": {"path": str(script)}, "resources": {"workers": 2}}
    key = {"Idempotency-Key": "only-once"}
    first = cluster.post("/training/jobs", json=spec, headers=key)["id"]
    kill_coordinator(cluster)
    assert cluster.post("/training/jobs", json=spec, headers=key)["id"] == first
    cluster.wait_for(first, "completed")
    assert sorted(ledger.read_text().split()) == ["0", "1"]


def test_a_job_without_a_rank_recovers_from_the_newest_checkpoint(cluster: Cluster) -> None:
    """While one of them is left, it would go on in place."""
    steps = 300
    job = cluster.submit(paced_job(steps))
    eventually("a committed checkpoint", lambda: cluster.get(f"/checkpoints/jobs/{job}")["items"])
    victims = cluster.rank_processes(job)
    assert len(victims) == 2
    for victim in victims:
        victim.send_signal(signal.SIGKILL)

    cluster.wait_for_step(job, 100)
    done = cluster.wait_for(job, "completed")
    assert done["attempt"] == 2
    attempts = cluster.get(f"/training/jobs/{job}/attempts")["items"]
    failure = next(a["failure"] for a in attempts if a["attempt"] == 1)
    assert failure["signal"] == signal.SIGKILL, (failure, cluster.story(job))
    assert "SIGKILL" in failure["message"]
    assert [s for s, _ in cluster.points(job, "loss")] == list(range(1, steps + 1))
    events = cluster.get(f"/training/jobs/{job}/events", params={"limit": 500})["items"]
    states = [e["data"]["state"] for e in events if e["kind"] == "state"]
    assert states == [
        "queued", "starting", "running", "recovering", "starting", "running", "completed",
    ]  # fmt: skip


def test_nothing_is_left_on_the_host(cluster_of_its_own: Cluster, tmp_path: Path) -> None:
    cluster = cluster_of_its_own
    job = cluster.submit(paced_job(100))
    cluster.wait_for(job, "completed")
    other = cluster.submit(paced_job(3000))
    cluster.wait_for_step(other, 10)
    cluster.put(f"/training/jobs/{other}/pause")
    cluster.wait_for(other, "paused")
    third = cluster.submit(counting_job(tmp_path))
    eventually("output", lambda: "line 5" in cluster.log_text(third, 0))
    cluster.request("DELETE", f"/training/jobs/{third}")
    cluster.wait_for(third, "cancelled")

    attempts = cluster.folder / "agent" / "attempts"
    eventually("the attempts' folders to go", lambda: not list(attempts.glob("*/*")))
    assert not cluster.rank_processes(third)
    cluster.agent.stop()
    cluster.coordinator.stop()
    eventually("every process to end", lambda: not cluster.processes())
    assert [p for p in cluster.runtime.rglob("*") if not p.is_dir()] == []


def test_the_warm_parent_may_die_too(cluster_of_its_own: Cluster) -> None:
    cluster = cluster_of_its_own
    job = cluster.submit(paced_job(200))
    cluster.wait_for_step(job, 20)
    ranks = [p.pid for p in cluster.rank_processes(job)]
    for process in psutil.Process(cluster.agent.pid).children():
        if any("trainhall.training.warm" in part for part in process.cmdline()):
            process.kill()
    done = cluster.wait_for(job, "completed")
    assert done["attempt"] == 1
    assert not any(psutil.pid_exists(pid) for pid in ranks)
    again = cluster.submit(paced_job(10))
    cluster.wait_for(again, "completed")
