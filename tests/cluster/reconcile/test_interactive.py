"""Interactive jobs: held while there are sessions, completed when idle for long."""

from typing import Any

from support.cluster.simulated import SimulatedCluster

NO_TASK: dict[str, Any] = {"task": None, "training": {}, "checkpoint": {}}


async def test_idle_job_completes_once_sessions_are_over(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(interactive={"idle_seconds": 600}, **NO_TASK)
    await cluster.run_until(job_id, "running")
    attempt = node.running(job_id)
    attempt.sessions = 1
    for _ in range(10):
        await cluster.heartbeat(80)
    job = await cluster.job(job_id)
    assert job.interactive is not None
    assert (job.state, job.interactive.idle_since, job.interactive.ends_at) == (
        "running",
        None,
        None,
    )
    attempt.sessions = 0
    await cluster.heartbeat(1)
    left_at = cluster.clock.now()
    for _ in range(7):
        await cluster.heartbeat(80)
    job = await cluster.job(job_id)
    assert job.state == "running"
    assert job.interactive is not None
    assert job.interactive.idle_since == left_at
    await cluster.heartbeat(80)
    done = await cluster.run_until(job_id, "completed")
    assert (done.reason_code, done.attempt) == ("idle", 1)
    assert done.reason == "idle for 10 min (interactive.idle_seconds)"


async def test_idle_job_can_be_cancelled(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(interactive={"idle_seconds": 60}, **NO_TASK)
    await cluster.run_until(job_id, "running")
    node.running(job_id).sessions = 0
    await cluster.heartbeat()
    await cluster.heartbeat(61)
    await cluster.coordinator.jobs.cancel(job_id)
    assert (await cluster.run_until(job_id, "cancelled")).reason_code == "cancelled"
