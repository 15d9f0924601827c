"""Devices that a host no longer has, while attempts hold them."""

from collections.abc import Sequence

from support.cluster.simulated import SimulatedCluster, SimulatedNode, failure

from trainhall.cluster.wire.protocol import DeviceUse
from trainhall.training.link.status import Outcome

TOO_SMALL = "the whole cluster has 2 CPU slots"


async def contended(hall: SimulatedCluster) -> tuple[SimulatedNode, str, str]:
    """A node of four slots, the job that runs on all of them, and one that waits for them."""
    node = await hall.add_node("alpha", slots=4)
    first = await hall.submit(4)
    await hall.run_until(first, "running")
    return node, first, await hall.submit(4)


async def with_slots(hall: SimulatedCluster, node: SimulatedNode, slots: int) -> None:
    """Its agent starts anew with so many devices; its ranks live on."""
    node.slots = slots
    await hall.connect(node)
    await hall.settle()


async def seen(hall: SimulatedCluster, node: SimulatedNode) -> list[tuple[int, bool, str | None]]:
    """What anybody is told of the node's devices."""
    devices = (await hall.coordinator.nodes.get(node.node_id)).devices
    assert devices == await hall.coordinator.nodes.devices()
    return [(device.index, device.gone, device.job_id) for device in devices]


def indices(node: SimulatedNode, job_id: str) -> list[int]:
    """The devices that a job computes on."""
    return [place.device_index for place in node.running(job_id).assignment.launch.ranks]


async def test_missing_device_is_held_and_not_granted_again(hall: SimulatedCluster) -> None:
    alpha, first, second = await contended(hall)
    await with_slots(hall, alpha, 2)
    assert TOO_SMALL in (await hall.job(second)).reason
    held = [(0, False, first), (1, False, first), (2, True, first), (3, True, first)]
    assert await seen(hall, alpha) == held
    assert (await hall.job(first)).state == "running"
    await hall.check()
    # The grants go while nobody has told anew which devices there are.
    alpha.end(alpha.running(first), Outcome.COMPLETED)
    await hall.work(2)
    assert (await hall.job(first)).state == "completed"
    waits = await hall.job(second)
    assert (waits.state, waits.attempt) == ("queued", 0)
    assert TOO_SMALL in waits.reason
    assert await seen(hall, alpha) == [(0, False, None), (1, False, None)]
    await hall.heartbeat(5)
    assert (await hall.coordinator.nodes.summary()).devices == 2
    third = await hall.submit(2)
    await hall.run_until(third, "running")
    await hall.check()


async def test_devices_name_the_job_that_holds_them(hall: SimulatedCluster) -> None:
    await hall.add_node("alpha", slots=2)
    job = await hall.submit(1)
    await hall.run_until(job, "running")
    name = (await hall.job(job)).name
    held = [(d.job_id, d.job_name) for d in await hall.coordinator.nodes.devices()]
    assert held == [(job, name), (None, None)]


async def test_returned_device_is_granted_again(hall: SimulatedCluster) -> None:
    alpha, first, second = await contended(hall)
    await with_slots(hall, alpha, 2)
    await with_slots(hall, alpha, 4)
    assert [gone for _, gone, _ in await seen(hall, alpha)] == [False] * 4
    await hall.finish(first)
    await hall.run_until(second, "running")
    await hall.check()


async def test_missing_device_has_no_readings(hall: SimulatedCluster) -> None:
    class Measured(SimulatedNode):
        def device_use(self) -> Sequence[DeviceUse]:  # type: ignore[override]
            return [
                DeviceUse(index=i, memory_used=5, utilization=50.0, temperature=40.0, power=9.0)
                for i in range(self.slots)
            ]

    alpha = Measured("alpha", 2)
    await hall.join(alpha)
    await hall.connect(alpha)
    await hall.settle()
    job_id = await hall.submit(2)
    await hall.run_until(job_id, "running")
    await with_slots(hall, alpha, 1)
    await hall.coordinator.gateway.flush_readings()
    there, gone = (await hall.coordinator.nodes.get(alpha.node_id)).devices
    assert (there.gone, there.utilization, there.power) == (False, 50.0, 9.0)
    assert (gone.gone, gone.job_id) == (True, job_id)
    readings = (gone.memory_used, gone.utilization, gone.temperature, gone.power)
    assert readings == (None, None, None, None)
    summary = await hall.coordinator.nodes.summary()
    assert (summary.devices, summary.devices_busy) == (2, 2)


async def test_elastic_job_leaves_them(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=4)
    job_id = await hall.submit(resources={"min_workers": 2, "max_workers": 4})
    await hall.run_until(job_id, "running")
    begun = {"resumed_from": None, "total_steps": 100, "samples": 9}
    await hall.report_event(job_id, "started", begun)
    await hall.heartbeat()
    await with_slots(hall, alpha, 3)
    await hall.heartbeat(1000)
    assert (await hall.job(job_id)).generation == 1, "its ranks there live"
    alpha.running(job_id).fall(3)
    await hall.heartbeat()
    assert indices(alpha, job_id) == [0, 1, 2]
    assert "continues with 3 workers instead of 4" in (await hall.job(job_id)).reason
    await hall.work(2)
    await hall.heartbeat(5)
    assert await seen(hall, alpha) == [(i, False, job_id) for i in range(3)]
    await hall.check()


async def test_job_waits_for_another_after_missing_device(hall: SimulatedCluster) -> None:
    alpha = await hall.add_node("alpha", slots=2)
    job_id = await hall.submit(2)
    await hall.run_until(job_id, "running")
    await with_slots(hall, alpha, 1)
    await hall.finish(job_id, Outcome.FAILED, failure())
    job = await hall.job(job_id)
    assert (job.state, job.attempt) == ("recovering", 1)
    assert "the whole cluster has 1 CPU slot" in job.reason
    beta = await hall.add_node("beta", slots=1)
    await hall.run_until(job_id, "running")
    assert [indices(node, job_id) for node in (alpha, beta)] == [[0], [0]]
    await hall.check()
