"""Jobs whose stored spec this version does not understand: another one took them."""

import pytest
from support.cluster.simulated import SimulatedCluster, SimulatedNode

from trainhall.db.models import Job

REASON = "this version does not understand its spec: of_a_newer_version: "


async def other_version(cluster: SimulatedCluster, *job_ids: str) -> None:
    """A coordinator takes over that does not understand the specs of these jobs."""
    await cluster.stop_coordinator()
    async with cluster.db.transaction() as session:
        for job_id in job_ids:
            job = await session.get(Job, job_id)
            assert job is not None
            job.spec = {**job.spec, "of_a_newer_version": 1}
    cluster.start_coordinator()


async def placed_but_not_sent(cluster: SimulatedCluster, node: SimulatedNode, workers: int) -> str:
    """A job that begins while its host is away for a moment."""
    await cluster.disconnect(node)
    job_id = await cluster.submit(workers)
    assert (await cluster.job(job_id)).state == "starting"
    assert not node.attempts
    return job_id


async def held(cluster: SimulatedCluster) -> list[str]:
    return [d.job_id for d in await cluster.coordinator.nodes.devices() if d.job_id]


async def over(cluster: SimulatedCluster, job_id: str, state: str) -> str:
    """The job's end, which leaves nothing behind; its reason."""
    await cluster.work(3)
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == (state, 1), job.reason
    assert await held(cluster) == []
    for node in cluster.nodes.values():
        assert not [token for token in node.attempts if token[0] == job_id]
        assert (await cluster.coordinator.nodes.get(node.node_id)).drain_reason is None
    await cluster.check()
    return job.reason


async def test_unsent_attempt_of_other_version_ends(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=3)
    other = await cluster.submit(1)
    await cluster.run_until(other, "running")
    await cluster.finish(other)
    job_id = await placed_but_not_sent(cluster, alpha, 2)
    await other_version(cluster, job_id)
    await cluster.connect(alpha)
    await cluster.settle()
    assert (await over(cluster, job_id, "failed")).startswith(REASON)
    assert not [token for token in alpha.launched if token[0] == job_id]
    assert await cluster.run_until(await cluster.submit(3), "running")


async def test_running_attempt_of_other_version_ends_everywhere(cluster: SimulatedCluster) -> None:
    nodes = [await cluster.add_node(name, slots=1) for name in ("alpha", "beta")]
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    await other_version(cluster, job_id)
    await cluster.connect(nodes[0])
    await cluster.settle()
    assert (await cluster.job(job_id)).state == "running", "its ranks have not ended"
    (attempt,) = await cluster.coordinator.jobs.attempts(job_id)
    assert attempt.reason.startswith(REASON)
    assert attempt.reason.endswith("; its ranks stop")
    await cluster.connect(nodes[1])
    await cluster.settle()
    assert (await over(cluster, job_id, "failed")).startswith(REASON)


async def test_others_of_its_node_run_on(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    job_id, other = await cluster.submit(1), await cluster.submit(1)
    await cluster.run_until(job_id, "running")
    await cluster.run_until(other, "running")
    await other_version(cluster, job_id)
    await cluster.connect(alpha)
    await cluster.work(4)
    assert (await cluster.job(job_id)).state == "failed"
    assert (await cluster.job(other)).state == "running"
    assert alpha.running(other).assignment.goal == "run"
    assert await held(cluster) == [other]


@pytest.mark.parametrize("early", [True, False], ids=["before a report", "after it"])
@pytest.mark.parametrize("runs", [True, False], ids=["runs", "not sent"])
async def test_cancel_ends_job_of_other_version(
    cluster: SimulatedCluster, early: bool, runs: bool
) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    if runs:
        job_id = await cluster.submit(2)
        await cluster.run_until(job_id, "running")
    else:
        job_id = await placed_but_not_sent(cluster, alpha, 2)
    await other_version(cluster, job_id)
    if early:
        await cluster.coordinator.jobs.cancel(job_id)
    await cluster.connect(alpha)
    await cluster.settle()
    if not early and (await cluster.job(job_id)).state not in ("failed", "cancelled"):
        await cluster.coordinator.jobs.cancel(job_id)
        await cluster.settle()
        early = True
    await over(cluster, job_id, "cancelled" if early else "failed")


async def test_resume_of_other_version_reports_why_not(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    await other_version(cluster, job_id)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.connect(alpha)
    await cluster.settle()
    assert (await over(cluster, job_id, "paused")).startswith(REASON)
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.settle()
    await cluster.work(3)
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("failed", 2)
    assert job.reason.startswith(REASON)


async def test_regrouping_attempt_of_other_version_ends(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    begun = {"resumed_from": None, "total_steps": 100, "samples": 9}
    await cluster.report_event(job_id, "started", begun)
    alpha.running(job_id).fall(1)
    await other_version(cluster, job_id)
    await cluster.connect(alpha)
    await cluster.settle()
    assert (await over(cluster, job_id, "failed")).startswith(REASON)
    assert (await cluster.job(job_id)).generation == 1
