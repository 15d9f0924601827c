"""Events and reasons name the users who asked, also where the coordinator acts on it later."""

from support.cluster.simulated import SimulatedCluster, spec

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.jobs.annotations import Annotation

MARIA = Principal("maria", True, "token")
OTTO = Principal("otto", True, "session")
ANYONE = Principal("root", True, "none")
"""Whoever reaches a coordinator without accounts."""


async def reasons(cluster: SimulatedCluster, job_id: str) -> list[tuple[str, str | None]]:
    """Text and user of each event."""
    page = await cluster.coordinator.jobs.events(job_id, limit=1000)
    return [(event.reason, event.data.get("user")) for event in page.items]


async def running(cluster: SimulatedCluster, workers: int = 2) -> str:
    job_id = await cluster.submit(workers=workers)
    await cluster.run_until(job_id, "running")
    started = {"resumed_from": None, "total_steps": 100, "samples": 9}
    await cluster.report_event(job_id, "started", started)
    await cluster.heartbeat()
    return job_id


async def test_pause_and_resume_name_the_user(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster)
    jobs = cluster.coordinator.jobs
    assert (await jobs.limited_to(MARIA).pause(job_id)).reason == "pause requested by maria"
    await cluster.settle()
    await cluster.run_until(job_id, "paused")
    await cluster.settle()
    job = await cluster.job(job_id)
    assert (job.state, job.reason) == ("paused", "paused by maria")
    assert ("paused by maria", "maria") in await reasons(cluster, job_id)
    assert (await jobs.limited_to(OTTO).resume(job_id)).reason == "resumed by otto"
    assert (await jobs.limited_to(ANYONE).cancel(job_id)).reason in (
        "cancelled by a user", "cancellation requested by a user"
    )  # fmt: skip


async def test_resize_names_the_user_when_it_applies(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster)
    await cluster.coordinator.jobs.limited_to(MARIA).resize(job_id, {"workers": 4})
    await cluster.settle()
    why = "resized by maria; continues with 4 workers instead of 2"
    assert (await cluster.job(job_id)).reason == why
    asked = "resize requested by maria: 4 workers instead of 2 workers"
    found = await reasons(cluster, job_id)
    assert (asked, "maria") in found
    assert found[-1][1] == "maria"


async def test_annotations_name_the_user(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    jobs = cluster.coordinator.jobs.limited_to(MARIA)
    await jobs.annotate(job_id, Annotation(add_tags=["baseline"], notes="Best."))
    await jobs.cancel(job_id)
    await jobs.annotate(job_id, Annotation(archived=True))
    found = await reasons(cluster, job_id)
    assert found == [
        ("submitted", None),
        ("maria added tag baseline", "maria"),
        ("notes changed by maria", "maria"),
        ("cancelled by maria", "maria"),
        ("archived by maria", "maria"),
    ]


async def test_drained_node_names_the_user(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    nodes = cluster.coordinator.nodes
    drained = await nodes.limited_to(MARIA).drain(node.node_id, "new disk")
    assert drained.reason == "drained by maria: new disk; nothing runs on it"
    await nodes.limited_to(OTTO).undrain(node.node_id)
    await nodes.limited_to(OTTO).change(node.node_id, labels={"rack": "b"})
    await nodes.limited_to(MARIA).drain(node.node_id)
    found = [event.reason for event in await nodes.events(node.node_id)]
    assert found[-3:] == [
        "undrained by otto", "labels by otto: rack=b", "drained by maria; nothing runs on it"
    ]  # fmt: skip


async def test_removed_node_names_the_user(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    await running(cluster)
    view = await cluster.coordinator.nodes.limited_to(MARIA).remove(node.node_id)
    assert view is not None
    assert view.reason == "removed by maria: its jobs move first"


async def test_submission_names_the_user(cluster: SimulatedCluster) -> None:
    submitted, _ = await cluster.coordinator.jobs.limited_to(MARIA).submit(spec())
    assert submitted.reason == "submitted by maria"
    assert await reasons(cluster, submitted.id) == [("submitted by maria", "maria")]
