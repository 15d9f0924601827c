"""Jobs whose stored spec this version does not understand: another one took them."""

import pytest
from support.cluster.simulated import SimulatedCluster, SimulatedNode

from trainhall.db.models import Job

REASON = "this version does not understand its spec: of_a_newer_version: "


async def other_version(hall: SimulatedCluster, *job_ids: str) -> None:
    """A coordinator takes over that does not understand the specs of these jobs."""
    await hall.stop_coordinator()
    async with hall.db.transaction() as session:
        for job_id in job_ids:
            job = await session.get(Job, job_id)
            assert job is not None
            job.spec = {**job.spec, "of_a_newer_version": 1}
    hall.start_coordinator()


async def placed_but_not_sent(hall: SimulatedCluster, node: SimulatedNode, workers: int) -> str:
    """A job that begins while its host is away for a moment."""
    await hall.disconnect(node)
    job_id = await hall.submit(workers)
    assert (await hall.job(job_id)).state == "starting"
    assert not node.attempts
    return job_id


async def held(hall: SimulatedCluster) -> list[str]:
    return [d.job_id for d in await hall.coordinator.nodes.devices() if d.job_id]


async def over(hall: SimulatedCluster, job_id: str, state: str) -> str:
    """The job's end, which leaves nothing behind; its reason."""
    await hall.work(3)
    job = await hall.job(job_id)
    assert (job.state, job.attempt) == (state, 1), job.reason
    assert await held(hall) == []
    for node in hall.nodes.values():
        assert not [token for token in node.attempts if token[0] == job_id]
        assert (await hall.coordinator.nodes.get(node.node_id)).drain_reason is None
    await hall.check()
    return job.reason


async def test_unsent_attempt_of_other_version_ends(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=3)
    other = await hall.submit(1)
    await hall.run_until(other, "running")
    await hall.finish(other)
    job_id = await placed_but_not_sent(hall, alpha, 2)
    await other_version(hall, job_id)
    await hall.connect(alpha)
    await hall.settle()
    assert (await over(hall, job_id, "failed")).startswith(REASON)
    assert not [token for token in alpha.launched if token[0] == job_id]
    assert await hall.run_until(await hall.submit(3), "running")


async def test_running_attempt_of_other_version_ends_everywhere(hall: SimulatedCluster) -> None:
    nodes = [await hall.add_node(name, slots=1) for name in ("alpha", "beta")]
    job_id = await hall.submit(2)
    await hall.run_until(job_id, "running")
    await other_version(hall, job_id)
    await hall.connect(nodes[0])
    await hall.settle()
    assert (await hall.job(job_id)).state == "running", "its ranks have not ended"
    (attempt,) = await hall.coordinator.jobs.attempts(job_id)
    assert attempt.reason.startswith(REASON)
    assert attempt.reason.endswith("; its ranks stop")
    await hall.connect(nodes[1])
    await hall.settle()
    assert (await over(hall, job_id, "failed")).startswith(REASON)


async def test_others_of_its_node_run_on(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=2)
    job_id, other = await hall.submit(1), await hall.submit(1)
    await hall.run_until(job_id, "running")
    await hall.run_until(other, "running")
    await other_version(hall, job_id)
    await hall.connect(alpha)
    await hall.work(4)
    assert (await hall.job(job_id)).state == "failed"
    assert (await hall.job(other)).state == "running"
    assert alpha.running(other).assignment.goal == "run"
    assert await held(hall) == [other]


@pytest.mark.parametrize("early", [True, False], ids=["before it is heard", "after"])
@pytest.mark.parametrize("runs", [True, False], ids=["runs", "not told"])
async def test_cancel_ends(hall: SimulatedCluster, early: bool, runs: bool) -> None:
    alpha = await hall.add_node("alpha", slots=2)
    if runs:
        job_id = await hall.submit(2)
        await hall.run_until(job_id, "running")
    else:
        job_id = await placed_but_not_sent(hall, alpha, 2)
    await other_version(hall, job_id)
    if early:
        await hall.coordinator.jobs.cancel(job_id)
    await hall.connect(alpha)
    await hall.settle()
    if not early and (await hall.job(job_id)).state not in ("failed", "cancelled"):
        await hall.coordinator.jobs.cancel(job_id)
        await hall.settle()
        early = True
    await over(hall, job_id, "cancelled" if early else "failed")


async def test_resume_of_other_version_reports_why_not(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=2)
    job_id = await hall.submit(2)
    await hall.run_until(job_id, "running")
    await other_version(hall, job_id)
    await hall.coordinator.jobs.pause(job_id)
    await hall.connect(alpha)
    await hall.settle()
    assert (await over(hall, job_id, "paused")).startswith(REASON)
    await hall.coordinator.jobs.resume(job_id)
    await hall.settle()
    await hall.work(3)
    job = await hall.job(job_id)
    assert (job.state, job.attempt) == ("failed", 2)
    assert job.reason.startswith(REASON)


async def test_regrouping_attempt_of_other_version_ends(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=2)
    job_id = await hall.submit(2)
    await hall.run_until(job_id, "running")
    begun = {"resumed_from": None, "total_steps": 100, "samples": 9}
    await hall.report_event(job_id, "started", begun)
    alpha.running(job_id).fall(1)
    await other_version(hall, job_id)
    await hall.connect(alpha)
    await hall.settle()
    assert (await over(hall, job_id, "failed")).startswith(REASON)
    assert (await hall.job(job_id)).generation == 1
