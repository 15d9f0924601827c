"""What a person should look at in a job that goes on."""

from support.simulated import SimulatedCluster
from support.stored import FILES, NAME, manifest, pieces


async def warnings(hall: SimulatedCluster, job_id: str) -> list[str]:
    """As a list of jobs has them, which are the job's own."""
    one = await hall.job(job_id)
    page = await hall.coordinator.jobs.list()
    (listed,) = [job for job in page.items if job.id == job_id]
    assert listed.warnings == one.warnings
    return list(one.warnings)


async def test_a_checkpoint_that_could_not_be_saved_is_told_until_the_next_is(
    hall: SimulatedCluster,
) -> None:
    await hall.add_node("alpha", 2)
    job_id, other = [await hall.submit(checkpoint={"path": None}) for _ in range(2)]
    for each in (job_id, other):
        await hall.run_until(each, "running")
    assert await warnings(hall, job_id) == []
    for step in (10, 20):
        message = f"the checkpoint of step {step} was not saved: OSError: no space"
        await hall.tell(job_id, "not_saved", {"step": step, "message": message})
        await hall.tell(job_id, "note", {"message": "something else"})
    assert await warnings(hall, job_id) == [message]
    assert await warnings(hall, other) == []

    service = hall.coordinator.checkpoints
    for path, data in {**FILES, "manifest.json": manifest(FILES, job_id)}.items():
        await service.receive(job_id, NAME, path, pieces(data))
    await service.commit(job_id, NAME)
    await hall.tell(job_id, "checkpoint", {"name": NAME, "step": 30, "size": 5})
    assert await warnings(hall, job_id) == []


async def test_what_an_ended_job_did_not_save_is_no_warning(hall: SimulatedCluster) -> None:
    await hall.add_node("alpha")
    job_id = await hall.submit()
    await hall.run_until(job_id, "running")
    await hall.tell(job_id, "not_saved", {"step": 1, "message": "no space"})
    await hall.coordinator.jobs.pause(job_id)
    await hall.run_until(job_id, "paused")
    assert await warnings(hall, job_id) == ["no space"]
    await hall.coordinator.jobs.cancel(job_id)
    await hall.run_until(job_id, "cancelled")
    assert await warnings(hall, job_id) == []


async def test_a_job_says_which_of_its_hosts_is_silent(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", 1)
    job_id = await hall.submit()
    await hall.run_until(job_id, "running")
    await hall.add_node("beta", 1)
    other = await hall.submit()
    await hall.run_until(other, "running")
    await hall.disconnect(alpha)
    for _ in range(10):
        await hall.heartbeat(2)
    (told,) = await warnings(hall, job_id)
    assert told.startswith("node alpha: not heard for ")
    assert await warnings(hall, other) == []
    await hall.connect(alpha, new_agent=False)
    await hall.heartbeat()
    assert await warnings(hall, job_id) == []
