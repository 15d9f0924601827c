"""Warnings of a job that continues."""

import re
from datetime import timedelta

from support.cluster.simulated import SimulatedCluster
from support.storage.frames import frame, table

from trainhall.cluster.jobs.summaries import job_warnings
from trainhall.db.models import Job


async def save(cluster: SimulatedCluster, job_id: str, step: int) -> None:
    name = f"step-{step:08d}-a1-g1"
    await cluster.report_event(job_id, "checkpoint", {"name": name, "step": step, "size": 5})


async def warnings(cluster: SimulatedCluster, job_id: str) -> list[str]:
    """As a list of jobs has them, which are the job's own."""
    one = await cluster.job(job_id)
    page = await cluster.coordinator.jobs.list()
    (listed,) = [job for job in page.items if job.id == job_id]
    assert listed.warnings == one.warnings
    return list(one.warnings)


async def test_warning_of_failed_save_lasts_until_next(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", 2)
    job_id, other = [await cluster.submit(checkpoint={"path": "/shared"}) for _ in range(2)]
    for each in (job_id, other):
        await cluster.run_until(each, "running")
    assert await warnings(cluster, job_id) == []
    for step in (10, 20):
        message = f"the checkpoint of step {step} was not saved: OSError: no space"
        await cluster.report_event(job_id, "not_saved", {"step": step, "message": message})
        await cluster.report_event(job_id, "note", {"message": "something else"})
    assert await warnings(cluster, job_id) == [message]
    assert await warnings(cluster, other) == []

    await save(cluster, job_id, 30)
    assert await warnings(cluster, job_id) == []


async def test_loss_that_is_not_a_number_is_a_warning(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    for number, (step, loss) in enumerate([(1, 0.5), (2, float("nan"))], 1):
        body = frame(number, table([step], None, lr=[float("nan")], **{"train/loss": [loss]}))
        await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
        expected = ["train/loss is NaN at step 2"] if step == 2 else []
        assert await warnings(cluster, job_id) == expected
    await cluster.finish(job_id)
    assert await warnings(cluster, job_id) == ["train/loss is NaN at step 2"]


async def test_warning_ends_with_a_later_checkpoint(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(checkpoint={"path": "/shared"})
    await cluster.run_until(job_id, "running")
    await save(cluster, job_id, 10)
    await save(cluster, job_id, 30)
    # A host that was left out reports its upload late.
    await cluster.report_event(job_id, "not_saved", {"step": 20, "message": "not uploaded"})
    assert await warnings(cluster, job_id) == []
    await cluster.report_event(job_id, "not_saved", {"step": 40, "message": "no space"})
    assert await warnings(cluster, job_id) == ["no space"]
    # To make room, or since it was looked at: nothing of it is a save.
    service = cluster.coordinator.checkpoints
    newest, oldest = (await service.list(job_id)).items
    await service.verification.mark(newest.id, "state.json: found 1 byte")
    await service.delete(oldest.id)
    assert await warnings(cluster, job_id) == ["no space"]
    await save(cluster, job_id, 50)
    assert await warnings(cluster, job_id) == []


async def test_warning_covers_refused_checkpoint(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(checkpoint={"path": None})
    await cluster.run_until(job_id, "running")
    await save(cluster, job_id, 10)
    (warning,) = await warnings(cluster, job_id)
    assert warning.startswith("a checkpoint was refused: name: step-00000010-a1-g1 was reported")


async def test_warning_is_empty_for_ended_job(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.report_event(job_id, "not_saved", {"step": 1, "message": "no space"})
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    assert await warnings(cluster, job_id) == ["no space"]
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.run_until(job_id, "cancelled")
    assert await warnings(cluster, job_id) == []


async def test_warning_names_the_unreachable_host(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.add_node("beta", 1)
    other = await cluster.submit()
    await cluster.run_until(other, "running")
    await cluster.disconnect(alpha)
    for _ in range(10):
        await cluster.heartbeat(2)
    (warning,) = await warnings(cluster, job_id)
    assert re.match(
        r"node alpha has been suspect since \d\d:\d\d:\d\d UTC: unreachable; no heartbeat for ",
        warning,
    )
    async with cluster.db.session() as session:
        job = await session.get_one(Job, job_id)
        tomorrow = cluster.clock.now() + timedelta(days=1)
        (warning,) = (await job_warnings(session, [job], tomorrow))[job_id]
    assert re.match(
        r"node alpha has been suspect since \d\d:\d\d:\d\d UTC on \w{3} \d\d: unreachable;", warning
    )
    assert await warnings(cluster, other) == []
    await cluster.connect(alpha, new_agent=False)
    await cluster.heartbeat()
    assert await warnings(cluster, job_id) == []
