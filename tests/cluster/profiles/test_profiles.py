"""Profiles reach the ranks once, and end with their reports or with the ranks."""

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    WrongStateError,
)
from trainhall.cluster.profiles.views import Profile
from trainhall.training.link.profiling.messages import ProfileRequest


async def running(cluster: SimulatedCluster, **spec: object) -> str:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(workers=2, **spec)
    await cluster.run_until(job_id, "running")
    return job_id


async def request(
    cluster: SimulatedCluster, job_id: str, ranks: list[int] | None = None
) -> Profile:
    return await cluster.coordinator.profiles.request(
        job_id, steps=20, ranks=ranks, stacks=False, memory=False
    )


async def newest(cluster: SimulatedCluster, job_id: str) -> Profile:
    return (await cluster.coordinator.profiles.list(job_id)).items[0]


def assigned(cluster: SimulatedCluster, job_id: str) -> ProfileRequest | None:
    """The request in the newest assignment of the job's host."""
    (node,) = cluster.nodes.values()
    return node.running(job_id).assignment.profile


def saved(rank: int, number: int = 1, **more: object) -> dict[str, object]:
    report = {"number": number, "rank": rank, "state": "saved", "first_step": 41, "last_step": 60}
    return report | {"stall_seconds": 0.125} | more


async def test_profile_is_assigned_until_all_ranks_reported(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    made = await request(cluster, job_id)
    assert (made.id, made.state, made.ranks) == (1, "requested", [0, 1])
    await cluster.settle()
    assert assigned(cluster, job_id) == ProfileRequest(number=1, steps=20, ranks=[0, 1])
    with pytest.raises(ConflictError, match="profile 1 of 20 steps has not ended"):
        await request(cluster, job_id)
    began = {"number": 1, "rank": 0, "state": "started", "first_step": 41}
    await cluster.report_event(job_id, "profile", began)
    assert (await newest(cluster, job_id)).state == "running"
    await cluster.report_event(job_id, "profile", saved(0))
    failed = {"number": 1, "rank": 1, "state": "failed", "message": "the disk is full"}
    await cluster.report_event(job_id, "profile", failed)
    end = await newest(cluster, job_id)
    assert (end.state, end.reason, end.first_step) == ("completed", None, 41)
    (trace,) = end.traces
    assert (trace.path, trace.size) == ("profiles/1/rank-0.json.gz", None)
    assert [(each.rank, each.message) for each in end.problems] == [(1, "the disk is full")]
    page = await cluster.coordinator.jobs.events(job_id, after=0)
    events = [each.reason for each in page.items if each.code.startswith("profile")]
    assert events == [
        "profile 1 of 20 steps of ranks 0, 1 was requested",
        "profile 1 of ranks 0, 1 began with step 41",
        "profile 1 has steps 41 to 60 of rank 0; its end held up training for 0.12 s; rank 1: the "
        "disk is full",
    ]
    cluster.coordinator.gateway.wake_all()
    await cluster.settle()
    assert assigned(cluster, job_id) is None
    assert (await request(cluster, job_id, [1])).id == 2


async def test_profile_fails_with_its_attempt(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    await request(cluster, job_id)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    end = await newest(cluster, job_id)
    assert end.state == "failed"
    assert end.reason is not None
    assert end.reason.startswith("ranks 0, 1: the rank ended")
    with pytest.raises(WrongStateError, match="it is paused"):
        await request(cluster, job_id)
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    assert assigned(cluster, job_id) is None, "it was asked of the attempt before"
    assert (await request(cluster, job_id)).id == 2


async def test_damaged_profile_reports_change_nothing(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    await request(cluster, job_id, [0])
    reports: list[dict[str, object]] = [
        {}, saved(0, number=7), saved(1), saved(0, first_step=-1), saved(0, message="x" * 9999),
        saved(0, last_step=2**70),
    ]  # fmt: skip
    for report in reports:
        await cluster.report_event(job_id, "profile", report)
    assert (await newest(cluster, job_id)).state == "requested"


async def test_script_is_profiled_once_it_asks(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster, task=None, script={"path": "/srv/train.py"}, training={})
    with pytest.raises(ConflictError, match=r"has not called trainhall\.should_stop"):
        await request(cluster, job_id)
    await cluster.report_event(job_id, "asks", {})
    assert (await request(cluster, job_id)).id == 1


async def test_profile_request_is_checked(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    for ranks in ([2], [-1, 0]):
        with pytest.raises(InvalidValueError, match="from 0 to 1"):
            await request(cluster, job_id, ranks)
    for call in (request(cluster, "nothing"), cluster.coordinator.profiles.list("nothing")):
        with pytest.raises(NotFoundError):
            await call
