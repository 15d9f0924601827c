"""A rank that hangs is named, and the job goes on without anybody's help."""

import signal

import pytest
from support.cluster.cluster import Cluster
from support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.acceptance

HANG = {
    "name": "hangs",
    "task": {"name": "synthetic", "params": {"step_seconds": 0.05}},
    "resources": {"workers": 2},
    "training": {"steps": 100_000, "global_batch_size": 32},
    "checkpoint": {"every_steps": 5},
    "recovery": {"hang_seconds": 1},
}


# A hang is found and told by the host; recoveries on each database are in tests/cluster.
@pytest.mark.parametrize("module_cluster", ["sqlite"], indirect=True)
def test_stopped_rank_is_named_and_job_recovers(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    job = cluster.submit(HANG)
    cluster.wait_for_step(job, 12)
    rank = next(p for p in cluster.rank_processes(job) if p.environ().get("RANK") == "1")
    rank.send_signal(signal.SIGSTOP)

    def recovered() -> bool:
        events = cluster.get(f"/training/jobs/{job}/events")["items"]
        return any(event["kind"] == "recovered" for event in events)

    eventually("the job has recovered", recovered)
    cluster.wait_for(job, "running")
    attempts = cluster.get(f"/training/jobs/{job}/attempts")["items"]
    incidents = [incident for attempt in attempts for incident in attempt["timeline"]]
    incident = incidents[0]
    failure = incident["failure"]
    assert (failure["cause"], failure["rank"]) == ("hang", 1)
    assert "its process is stopped (state T" in failure["message"]
    assert failure["node"] == attempts[0]["allocation"][0]["node_name"]
    assert failure["step"] >= 12
    assert incident["steps_redone"] is not None
    assert 0 < incident["total_seconds"] < PATIENCE
    # The rank that waited for it tells where, in the job's log.
    eventually("stacks", lambda: "stacks of rank 0" in cluster.log_text(job, 0, "stderr"))
    assert "training/loop/loop.py" in cluster.log_text(job, 0, "stderr")
