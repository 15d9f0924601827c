"""Nothing dies with the coordinator or the agent: killed, they come back, and nobody notices."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from support.cluster.cluster import Cluster
from support.holds import STEPS, Gate, free_task
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

COUNTING_SCRIPT = """
import os, sys, time
from pathlib import Path
rank, gate = os.environ["RANK"], Path(sys.argv[1])
count = 0
while not gate.exists():
    time.sleep(0.01)
    print(f"rank {rank} line {count}", flush=True)
    count += 1
for i in range(count, count + 500):
    print(f"rank {rank} line {i}", flush=True)
Path(f"{gate}-lines-{rank}").write_text(str(count + 500))
"""


def stepping_job(gate: Gate) -> dict[str, object]:
    return {
        "name": "stepping",
        "task": gate.task("synthetic"),
        "resources": {"workers": 2},
        "training": {"steps": STEPS, "global_batch_size": 32},
        "checkpoint": {"every_steps": 25},
    }


def counting_job(gate: Gate) -> dict[str, object]:
    """It prints 500 lines more once the gate is open, and writes down how many it has printed."""
    script = gate.path.parent / "count.py"
    script.write_text(COUNTING_SCRIPT)
    return {
        "name": "counting",
        "script": {"path": str(script), "args": [str(gate.path)]},
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


def lines_as(cluster: Cluster, job: str, rank: int, expected: list[str]) -> list[str] | None:
    lines = cluster.log_text(job, rank).splitlines()
    return lines if lines == expected else None


# What becomes of the data is the database's affair where it is killed; beside that, of an agent's
# end and of an orderly one it sees nothing.
@pytest.mark.parametrize(
    ("killed_cluster", "kill"),
    [
        ("sqlite", kill_coordinator),
        ("sqlite", kill_agent),
        ("sqlite", shut_both_down_for_an_upgrade),
        ("postgres", kill_coordinator),
        ("postgres", kill_both),
    ],
    indirect=["killed_cluster"],
)
def test_ranks_metrics_and_lines_outlive_a_kill(
    cluster: Cluster, kill: Callable[[Cluster], None], gate: Gate
) -> None:
    job = cluster.submit(stepping_job(gate))
    cluster.wait_for_step(job, 40)
    writing = cluster.submit(counting_job(gate))
    eventually("output", lambda: "line 50" in cluster.log_text(writing, 0))
    both = (job, writing)
    ranks = [[p.pid for p in cluster.rank_processes(each)] for each in both]
    assert [len(pids) for pids in ranks] == [2, 2]

    kill(cluster)

    assert [[p.pid for p in cluster.rank_processes(each)] for each in both] == ranks
    seen = cluster.job(job)["step"]
    gate.open()
    cluster.wait_for_step(job, seen + 40)
    for each in both:
        assert cluster.wait_for(each, "completed")["attempt"] == 1
    for rank in (None, 0, 1):
        assert [s for s, _ in cluster.points(job, "step_seconds", rank)] == list(
            range(1, STEPS + 1)
        )
    assert [s for s, _ in cluster.points(job, "loss")] == list(range(1, STEPS + 1))
    for rank in range(2):
        lines = int(Path(f"{gate.path}-lines-{rank}").read_text())
        expected = [f"rank {rank} line {i}" for i in range(lines)]
        got = eventually(
            f"the whole output of rank {rank}",
            partial(lines_as, cluster, writing, rank, expected),
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


# Recoveries on each database are in tests/cluster.
@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_job_recovers_from_newest_checkpoint_without_ranks(cluster: Cluster, gate: Gate) -> None:
    """While one of them is left, it would go on in place."""
    job = cluster.submit(stepping_job(gate))
    eventually("a committed checkpoint", lambda: cluster.get(f"/checkpoints/jobs/{job}")["items"])
    victims = cluster.rank_processes(job)
    assert len(victims) == 2
    shim = victims[0].parent()
    assert shim is not None
    # It would replace the first one before the second is dead, if this process had to wait between.
    shim.suspend()
    for victim in victims:
        victim.kill()
    eventually("both ranks to be dead", lambda: not cluster.rank_processes(job))
    shim.resume()
    gate.open()
    cluster.wait_for_step(job, 100)
    done = cluster.wait_for(job, "completed")
    assert done["attempt"] == 2
    attempts = cluster.get(f"/training/jobs/{job}/attempts")["items"]
    failure = next(a["failure"] for a in attempts if a["attempt"] == 1)
    assert failure["signal"] == signal.SIGKILL, (failure, cluster.story(job))
    assert "SIGKILL" in failure["message"]
    assert [s for s, _ in cluster.points(job, "loss")] == list(range(1, STEPS + 1))
    events = cluster.get(f"/training/jobs/{job}/events", params={"limit": 500})["items"]
    states = [e["data"]["state"] for e in events if e["kind"] == "state"]
    assert states == [
        "queued", "starting", "running", "recovering", "starting", "running", "completed",
    ]  # fmt: skip


def test_nothing_is_left_on_the_host(cluster_of_its_own: Cluster, gate: Gate) -> None:
    cluster = cluster_of_its_own
    job = cluster.submit({**stepping_job(gate), "task": free_task("synthetic")})
    cluster.wait_for(job, "completed")
    other = cluster.submit(stepping_job(gate))
    cluster.wait_for_step(other, 10)
    cluster.put(f"/training/jobs/{other}/pause")
    cluster.wait_for(other, "paused")
    third = cluster.submit(counting_job(gate))
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


@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_the_warm_parent_may_die_too(cluster: Cluster, gate: Gate) -> None:
    job = cluster.submit(stepping_job(gate))
    cluster.wait_for_step(job, 20)
    ranks = [p.pid for p in cluster.rank_processes(job)]
    (parent,) = cluster.warm_parents()
    parent.kill()
    gate.open()
    done = cluster.wait_for(job, "completed")
    assert done["attempt"] == 1
    assert not any(psutil.pid_exists(pid) for pid in ranks)
    again = cluster.submit({**stepping_job(gate), "training": {"steps": 5}})
    cluster.wait_for(again, "completed")
