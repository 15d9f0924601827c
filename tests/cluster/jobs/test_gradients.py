"""Requests for gradients are level-triggered, and the records of ranks are bounded."""

from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import ConflictError, NotFoundError, WrongStateError
from trainhall.cluster.jobs import gradients
from trainhall.db.models import Attempt
from trainhall.db.models import GradientRecord as StoredGradientRecord
from trainhall.training.link.gradient_record import MAX_GRADIENTS, GradientRecord, Histogram


def record(step: int, *, request: int = 0, names: int = 2, norm: float = 0.5) -> dict[str, Any]:
    return GradientRecord(
        step=step,
        request=request,
        names=[f"layers.{i}.weight" for i in range(names)],
        norms=[norm] * names,
        largest=[2 * norm] * names,
        histograms=[Histogram(first=3, counts=[1, 2])] * names if request else None,
    ).as_json()


async def running(cluster: SimulatedCluster) -> str:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    return job_id


def requests(cluster: SimulatedCluster, job_id: str) -> int:
    """The request in the newest assignment of the job's host."""
    (node,) = cluster.nodes.values()
    return node.running(job_id).assignment.gradients


async def steps(cluster: SimulatedCluster, job_id: str, most: int = 512) -> list[tuple[int, int]]:
    _, found = await cluster.coordinator.gradients.history(job_id, most)
    return [(each.attempt, each.step) for each in found]


async def test_gradient_request_is_sent_until_answered(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    service = cluster.coordinator.gradients
    first = await service.ask(job_id)
    assert first == gradients.GradientRequests(asked=1, answered=0)
    assert await service.ask(job_id) == first, "it waits already"
    await cluster.settle()
    assert requests(cluster, job_id) == 1
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    (node,) = cluster.nodes.values()
    await cluster.connect(node)
    await cluster.settle()
    assert requests(cluster, job_id) == 1
    await cluster.report_event(job_id, "gradients", record(40))
    assert (await cluster.coordinator.gradients.ask(job_id)).answered == 0, "that was not requested"
    await cluster.report_event(job_id, "gradients", record(41, request=1))
    await cluster.heartbeat()
    asked, found = await cluster.coordinator.gradients.history(job_id, 10)
    assert asked == gradients.GradientRequests(asked=1, answered=1)
    assert [each.has_histograms for each in found] == [False, True]
    cluster.coordinator.gateway.wake_all()
    await cluster.settle()
    assert requests(cluster, job_id) == 0
    assert (await cluster.coordinator.gradients.ask(job_id)).asked == 2


async def test_gradient_request_is_passed_to_recovered_attempt(
    cluster: SimulatedCluster,
) -> None:
    job_id = await running(cluster)
    await cluster.coordinator.gradients.ask(job_id)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    assert requests(cluster, job_id) == 1


async def test_gradient_request_needs_a_training_task(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.run_until(job_id, "cancelled")
    service = cluster.coordinator.gradients
    with pytest.raises(WrongStateError, match="cancelled"):
        await service.ask(job_id)
    script = await cluster.submit(task=None, script={"path": "/srv/train.py"}, training={})
    with pytest.raises(ConflictError, match="script"):
        await service.ask(script)
    for call in (service.ask("nothing"), service.history("nothing", 1), service.one("nothing", 1)):
        with pytest.raises(NotFoundError):
            await call
    with pytest.raises(NotFoundError, match=rf"recorded step '7 of “test” \({job_id}\)'"):
        await service.one(job_id, 7)


async def test_gradient_record_is_stored_unchanged(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    service = cluster.coordinator.gradients
    asked = await service.ask(job_id)
    await cluster.report_event(
        job_id, "gradients", record(3, request=asked.asked, norm=float("nan"))
    )
    found, histograms = await service.one(job_id, 3)
    assert (found.norms, found.largest) == (["NaN", "NaN"], ["NaN", "NaN"])
    assert histograms == [{"first": 3, "counts": [1, 2], "zeros": 0, "not_finite": 0}] * 2
    damaged: list[dict[str, Any]] = [
        {}, {"step": 0}, {**record(4), "norms": [1.0]}, {**record(4), "names": ["x"] * 2000},
        record(4) | {"step": 2**63},
        record(4, request=1) | {"histograms": [{"counts": [2**64]}] * 2},
    ]  # fmt: skip
    for data in damaged:
        await cluster.report_event(job_id, "gradients", data)
    assert await steps(cluster, job_id) == [(1, 3)]


async def test_gradient_records_of_a_job_are_bounded(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "KEPT_RECORDS", 8)
    monkeypatch.setattr(gradients, "KEPT_HISTOGRAMS", 2)
    job_id = await running(cluster)
    service = cluster.coordinator.gradients
    for step in range(1, 30):
        request = 0
        if step > 24:
            request = (await service.ask(job_id)).asked
        await cluster.report_event(job_id, "gradients", record(step, request=request))
        assert len(await steps(cluster, job_id)) <= 8
    _, found = await service.history(job_id, 512)
    kept = [each.step for each in found]
    assert kept[0] == 1
    assert kept[-1] == 29
    assert [each.step for each in found if each.has_histograms] == kept[-2:]
    assert [step for _, step in await steps(cluster, job_id, 3)][-1] == 29
    assert len(await steps(cluster, job_id, 3)) == 3


async def test_gradient_answer_survives_thinning(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "KEPT_RECORDS", 4)
    job_id = await running(cluster)
    service = cluster.coordinator.gradients
    await service.ask(job_id)
    for step in (1, 2, 3, 4):
        await cluster.report_event(job_id, "gradients", record(step, request=1 if step == 2 else 0))
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    await cluster.report_event(
        job_id, "started", {"resumed_from": 3, "total_steps": 100, "samples": 5}
    )
    await cluster.report_event(job_id, "gradients", record(4))
    assert await steps(cluster, job_id) == [(1, 1), (1, 2), (1, 3), (2, 4)], (
        "the newest, and asked for"
    )
    for step in (5, 6, 7):
        await cluster.report_event(job_id, "gradients", record(step))
    _, found = await service.history(job_id, 512)
    assert len(found) <= 4
    assert [each.step for each in found if each.has_histograms] == [2]


async def test_record_of_a_large_model_is_small(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    await cluster.report_event(job_id, "gradients", record(1, names=MAX_GRADIENTS))
    async with cluster.db.session() as session:
        row = await session.get(StoredGradientRecord, (job_id, 1, 1))
        assert row is not None
        assert len(row.columns) < 32 * MAX_GRADIENTS


async def test_gradient_records_prefer_repeated_steps(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    for step in (10, 20, 30):
        await cluster.report_event(job_id, "gradients", record(step))
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    await cluster.report_event(
        job_id, "started", {"resumed_from": 15, "total_steps": 100, "samples": 5}
    )
    assert await steps(cluster, job_id) == [(1, 10)]
    await cluster.report_event(job_id, "gradients", record(20))
    assert await steps(cluster, job_id) == [(1, 10), (2, 20)]
    async with cluster.db.transaction() as session:
        attempt = await session.get(Attempt, (job_id, 2))
        assert attempt is not None
        attempt.revoked = True
    await cluster.report_event(job_id, "gradients", record(30))
    assert await steps(cluster, job_id) == [(1, 10), (2, 20)], "the attempt is revoked"
