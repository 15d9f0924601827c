"""A user resizes a job: in place, by its next attempt, or before it starts."""

from typing import Any

import pytest
from sqlalchemy import update
from support.cluster.simulated import SimulatedCluster, failure, spec

from trainhall.cluster.errors import InvalidValueError, NotFoundError, WrongStateError
from trainhall.cluster.jobs import views
from trainhall.cluster.jobs.spec_changes import resized_spec
from trainhall.cluster.snapshot.load import load_facts
from trainhall.db.models import JobProgress
from trainhall.training.link.status import Outcome
from trainhall.training.spec import SpecError


async def running(cluster: SimulatedCluster, **more: Any) -> str:
    """A job whose ranks have begun to train."""
    job_id = await cluster.submit(**more)
    await cluster.run_until(job_id, "running")
    await began(cluster, job_id)
    return job_id


async def began(cluster: SimulatedCluster, job_id: str) -> None:
    await cluster.report_event(
        job_id, "started", {"resumed_from": None, "total_steps": 100, "samples": 9}
    )
    await cluster.heartbeat()


async def resize(cluster: SimulatedCluster, job_id: str, **resources: int) -> views.Job:
    view = await cluster.coordinator.jobs.resize(job_id, resources)
    await cluster.settle()
    return view


async def run_at(cluster: SimulatedCluster, job_id: str, size: int) -> views.Job:
    """Until the job runs at this size."""
    for _ in range(20):
        job = await cluster.job(job_id)
        if (job.state, job.world_size) == ("running", size):
            return job
        await cluster.work()
    raise AssertionError(f"job {job_id} is {job.state} ({job.reason}) at {job.world_size}")


async def sizes(cluster: SimulatedCluster, job_id: str) -> list[list[int]]:
    """Of each attempt, those of its generations."""
    attempts = await cluster.coordinator.jobs.attempts(job_id)
    return [[g.world_size for g in attempt.generations] for attempt in attempts]


@pytest.mark.parametrize("resources", [{"workers": 2}, {"min_workers": 1, "max_workers": 2}])
async def test_resize_changes_data_parallel_job_in_place(
    cluster: SimulatedCluster, resources: dict[str, int]
) -> None:
    node = await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, resources=resources)
    assert ((await resize(cluster, job_id, workers=4)).spec or {})["resources"]["workers"] == 4
    job = await cluster.job(job_id)
    assert (job.state, job.attempt, job.generation, job.world_size) == ("running", 1, 2, 4)
    assert job.reason == "resized by a user; continues with 4 workers instead of 2"
    assert node.running(job_id).assignment.launch.spec.resources.workers == 4
    await cluster.heartbeat()
    await resize(cluster, job_id, workers=1)
    await run_at(cluster, job_id, 1)
    await cluster.heartbeat()
    assert (await cluster.job(job_id)).reason == "1 rank on alpha", "as many as asked for"
    await resize(cluster, job_id, min_workers=2, max_workers=3)
    await run_at(cluster, job_id, 3)
    assert await sizes(cluster, job_id) == [[2, 4, 1, 3]]
    await cluster.check()


async def test_resize_restarts_other_job_from_its_save(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, workers=2, parallelism={"strategy": "fsdp", "shard": 2})
    saved = await cluster.save_checkpoint(job_id, 10)
    await resize(cluster, job_id, workers=4)
    assert node.running(job_id).assignment.goal == "pause"
    why = "resized by a user; continues with 4 workers instead of 2: it saves first"
    assert (await cluster.job(job_id)).reason == why
    launch = node.running(job_id).assignment.launch
    assert launch.spec.resources.workers == 2, "an attempt keeps its own size to its end"
    assert (await run_at(cluster, job_id, 4)).attempt == 2
    launch = node.running(job_id).assignment.launch
    assert (launch.world_size, launch.spec.resources.workers) == (4, 4)
    assert launch.checkpoint.resume == [saved]
    assert launch.spec.parallelism.shard == 2, "it goes with the new number"
    first, _ = await cluster.coordinator.jobs.attempts(job_id)
    assert (first.state, first.reason_code) == ("paused", "resized")
    reasons = [event.reason for event in (await cluster.coordinator.jobs.events(job_id)).items]
    assert any(
        reason.startswith("resize requested by a user: 4 workers instead of 2")
        for reason in reasons
    ), reasons
    await cluster.check()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
async def test_resize_waits_for_free_devices(cluster: SimulatedCluster, strategy: str) -> None:
    await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, workers=2, parallelism={"strategy": strategy})
    other = await running(cluster, workers=2)
    reason = (await resize(cluster, job_id, workers=4)).reason
    asked = "resize requested by a user: 4 workers instead of 2"
    assert reason == f"{asked} workers"
    job = await cluster.job(job_id)
    assert (job.state, job.reason) == ("running", f"{asked}; it keeps 2 until devices are free")
    assert await sizes(cluster, job_id) == [[2]]
    back = await resize(cluster, job_id, workers=2)
    assert back.reason == "2 ranks on alpha", "nothing is left to wait for"
    await resize(cluster, job_id, workers=4)
    await cluster.finish(other)
    await run_at(cluster, job_id, 4)
    await cluster.check()


async def test_resize_to_fewer_workers_waits_for_a_step(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(workers=2)
    await cluster.run_until(job_id, "running")
    await resize(cluster, job_id, workers=1)
    reason = (await cluster.job(job_id)).reason
    assert reason.endswith("1 worker instead of 2; it keeps 2 until its ranks have finished a step")
    await began(cluster, job_id)
    await run_at(cluster, job_id, 1)


async def test_resize_keeps_reason_if_size_stays(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    job = await resize(cluster, job_id, min_workers=1, max_workers=2)
    assert job.reason == "2 ranks on alpha"
    events = (await cluster.coordinator.jobs.events(job_id)).items
    assert "1 to 2 workers instead of 2 workers" in events[-1].reason, "its history has it"


async def test_resize_survives_rank_failure_while_waiting(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    await resize(cluster, job_id, workers=4)
    await cluster.heartbeat()
    node.running(job_id).fall(1)
    await cluster.heartbeat()
    job = await cluster.job(job_id)
    assert (job.state, job.attempt, job.generation, job.world_size) == ("running", 1, 2, 2)
    await cluster.check()


async def test_resize_applies_when_waiting_job_starts(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit(workers=8)
    assert (await resize(cluster, job_id, workers=2)).world_size == 2
    await cluster.coordinator.jobs.pause(job_id)
    paused = await resize(cluster, job_id, min_workers=1, max_workers=3)
    assert (paused.state, paused.world_size) == ("paused", 3)
    await cluster.add_node("alpha", slots=2)
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    assert (await cluster.job(job_id)).world_size == 2
    await cluster.check()


async def test_resize_discards_pace_of_old_size(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")

    async def pace() -> float | None:
        async with cluster.db.transaction() as session:
            await session.execute(update(JobProgress).values(metrics={"step_seconds": 0.5}))
            (job,) = (await load_facts(session, cluster.coordinator.heartbeats)).jobs
        return job.step_seconds

    await cluster.coordinator.jobs.resume(job_id)
    assert await pace() == 0.5
    await cluster.coordinator.jobs.resize(job_id, {"workers": 1})
    assert await pace() is None, "backfilled by it, it would keep others waiting for their devices"


async def test_resize_names_a_size_that_the_cluster_never_has(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    await resize(cluster, job_id, workers=40)
    reason = (await cluster.job(job_id)).reason
    assert reason.startswith(
        "resize requested by a user: 40 workers instead of 2; it keeps 2; on the cluster as it is "
        "now, it will never have that size: needs 40 CPU slots; the whole cluster has 2 CPU slots"
    )
    await cluster.add_node("beta", slots=38)
    await run_at(cluster, job_id, 40)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_resize_not_applied_leaves_the_spec(
    cluster: SimulatedCluster, cancelled: bool
) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    before = (await cluster.job(job_id)).spec
    await resize(cluster, job_id, workers=40)
    if cancelled:
        await cluster.coordinator.jobs.cancel(job_id)
        await cluster.run_until(job_id, "cancelled")
    else:
        await cluster.finish(job_id)
        await cluster.run_until(job_id, "completed")
    job = await cluster.job(job_id)
    assert (job.spec, job.world_size) == (before, 2)
    events = (await cluster.coordinator.jobs.events(job_id)).items
    (note,) = [event for event in events if event.code == "resize_not_applied"]
    assert note.reason == "the resize to 40 workers was not applied: the job ended first"
    await cluster.check()


async def test_resize_that_was_applied_stays_in_the_spec(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, workers=2)
    await resize(cluster, job_id, min_workers=1, max_workers=2)
    await cluster.finish(job_id)
    job = await cluster.run_until(job_id, "completed")
    assert (job.spec or {})["resources"]["max_workers"] == 2, "it ran with a size of the new range"


async def test_resize_not_applied_before_a_cancel_in_the_queue(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, workers=2)
    before = (await cluster.job(job_id)).spec
    await resize(cluster, job_id, workers=40)
    await cluster.finish(job_id, Outcome.FAILED, failure=failure())
    await cluster.run_until(job_id, "recovering")
    await cluster.coordinator.jobs.cancel(job_id)
    job = await cluster.job(job_id)
    assert (job.state, job.spec) == ("cancelled", before)


async def test_resize_waits_while_the_job_pauses(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, workers=2)
    await cluster.coordinator.jobs.pause(job_id)
    await resize(cluster, job_id, workers=3)
    assert node.running(job_id).assignment.launch.world_size == 2
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    assert (await cluster.job(job_id)).world_size == 3
    await cluster.check()


def test_resize_adapts_incompatible_degrees() -> None:
    given = spec(4, parallelism={"strategy": "tensor", "tensor": 2, "data": 2})
    larger = resized_spec(given.model_dump(mode="json"), {"workers": 8})
    assert larger.resources.workers == 8
    assert larger.parallelism.data is None


def test_resize_keeps_omitted_end_of_range() -> None:
    elastic = spec(resources={"min_workers": 4, "max_workers": 8}).model_dump(mode="json")
    assert list(resized_spec(elastic, {"max_workers": 6}).resources.asked) == [4, 5, 6]
    assert list(resized_spec(elastic, {"min_workers": 7}).resources.asked) == [7, 8]
    fixed = spec(4).model_dump(mode="json")
    assert list(resized_spec(fixed, {"max_workers": 2}).resources.asked) == [1, 2]


async def test_resize_refuses_impossible_number(
    cluster: SimulatedCluster,
) -> None:
    jobs = cluster.coordinator.jobs
    job_id = await cluster.submit(workers=2, training={"global_batch_size": 12, "steps": 10})
    before = await cluster.job(job_id)
    for resources in ({"workers": 0}, {"workers": 5}, {"min_workers": 3, "max_workers": 2}):
        with pytest.raises(SpecError):
            await jobs.resize(job_id, resources)
    with pytest.raises(InvalidValueError, match="give workers, or min_workers and max_workers"):
        await jobs.resize(job_id, {})
    with pytest.raises(NotFoundError):
        await jobs.resize("nothing", {"workers": 1})
    assert await cluster.job(job_id) == before
    assert (await jobs.resize(job_id, {"workers": 2})) == before, "it has that already"
    await jobs.cancel(job_id)
    with pytest.raises(
        WrongStateError, match="restore one of its checkpoints with other resources"
    ):
        await jobs.resize(job_id, {"workers": 1})
