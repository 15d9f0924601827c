"""What a person should look at in a job that goes on."""

import re
from datetime import timedelta

from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.jobs.summaries import job_warnings
from trainhall.db.models import Job


async def save(hall: SimulatedCluster, job_id: str, step: int) -> None:
    name = f"step-{step:08d}-a1-g1"
    await hall.report_event(job_id, "checkpoint", {"name": name, "step": step, "size": 5})


async def warnings(hall: SimulatedCluster, job_id: str) -> list[str]:
    """As a list of jobs has them, which are the job's own."""
    one = await hall.job(job_id)
    page = await hall.coordinator.jobs.list()
    (listed,) = [job for job in page.items if job.id == job_id]
    assert listed.warnings == one.warnings
    return list(one.warnings)


async def test_warning_of_failed_save_lasts_until_next(
    hall: SimulatedCluster,
) -> None:
    await hall.add_node("alpha", 2)
    job_id, other = [await hall.submit(checkpoint={"path": "/shared"}) for _ in range(2)]
    for each in (job_id, other):
        await hall.run_until(each, "running")
    assert await warnings(hall, job_id) == []
    for step in (10, 20):
        message = f"the checkpoint of step {step} was not saved: OSError: no space"
        await hall.report_event(job_id, "not_saved", {"step": step, "message": message})
        await hall.report_event(job_id, "note", {"message": "something else"})
    assert await warnings(hall, job_id) == [message]
    assert await warnings(hall, other) == []

    await save(hall, job_id, 30)
    assert await warnings(hall, job_id) == []


async def test_warning_ends_with_a_later_checkpoint(hall: SimulatedCluster) -> None:
    await hall.add_node("alpha")
    job_id = await hall.submit(checkpoint={"path": "/shared"})
    await hall.run_until(job_id, "running")
    await save(hall, job_id, 10)
    await save(hall, job_id, 30)
    # A host that was left out tells late of its upload.
    await hall.report_event(job_id, "not_saved", {"step": 20, "message": "not uploaded"})
    assert await warnings(hall, job_id) == []
    await hall.report_event(job_id, "not_saved", {"step": 40, "message": "no space"})
    assert await warnings(hall, job_id) == ["no space"]
    # To make room, or since it was looked at: nothing of it is a save.
    service = hall.coordinator.checkpoints
    newest, oldest = (await service.list(job_id)).items
    await service.verification.mark(newest.id, "state.json: found 1 byte")
    await service.delete(oldest.id)
    assert await warnings(hall, job_id) == ["no space"]
    await save(hall, job_id, 50)
    assert await warnings(hall, job_id) == []


async def test_warning_covers_refused_checkpoint(
    hall: SimulatedCluster,
) -> None:
    await hall.add_node("alpha")
    job_id = await hall.submit(checkpoint={"path": None})
    await hall.run_until(job_id, "running")
    await save(hall, job_id, 10)
    (warning,) = await warnings(hall, job_id)
    assert warning.startswith("a checkpoint was refused: name: step-00000010-a1-g1 was reported")


async def test_warning_is_empty_for_ended_job(hall: SimulatedCluster) -> None:
    await hall.add_node("alpha")
    job_id = await hall.submit()
    await hall.run_until(job_id, "running")
    await hall.report_event(job_id, "not_saved", {"step": 1, "message": "no space"})
    await hall.coordinator.jobs.pause(job_id)
    await hall.run_until(job_id, "paused")
    assert await warnings(hall, job_id) == ["no space"]
    await hall.coordinator.jobs.cancel(job_id)
    await hall.run_until(job_id, "cancelled")
    assert await warnings(hall, job_id) == []


async def test_warning_names_the_unreachable_host(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", 1)
    job_id = await hall.submit()
    await hall.run_until(job_id, "running")
    await hall.add_node("beta", 1)
    other = await hall.submit()
    await hall.run_until(other, "running")
    await hall.disconnect(alpha)
    for _ in range(10):
        await hall.heartbeat(2)
    (warning,) = await warnings(hall, job_id)
    assert re.match(
        r"node alpha is suspect since \d\d:\d\d:\d\d UTC: unreachable; no heartbeat for ", warning
    )
    async with hall.db.session() as session:
        job = await session.get_one(Job, job_id)
        tomorrow = hall.clock.now() + timedelta(days=1)
        (warning,) = (await job_warnings(session, [job], tomorrow))[job_id]
    assert re.match(
        r"node alpha is suspect since \d\d:\d\d:\d\d UTC on \w{3} \d\d: unreachable;", warning
    )
    assert await warnings(hall, other) == []
    await hall.connect(alpha, new_agent=False)
    await hall.heartbeat()
    assert await warnings(hall, job_id) == []
