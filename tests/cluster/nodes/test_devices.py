"""Devices that a host no longer has, while attempts hold them."""

from collections.abc import Sequence

from support.cluster.simulated import SimulatedCluster, SimulatedNode, failure

from trainhall.cluster.wire.protocol import DeviceUse
from trainhall.training.link.status import Outcome

TOO_SMALL = "the whole cluster has 2 CPU slots"


async def contended(cluster: SimulatedCluster) -> tuple[SimulatedNode, str, str]:
    """A node of four slots, the job that runs on all of them, and one that waits for them."""
    node = await cluster.add_node("alpha", slots=4)
    first = await cluster.submit(4)
    await cluster.run_until(first, "running")
    return node, first, await cluster.submit(4)


async def with_slots(cluster: SimulatedCluster, node: SimulatedNode, slots: int) -> None:
    """Its agent restarts with so many devices; its ranks live on."""
    node.slots = slots
    await cluster.connect(node)
    await cluster.settle()


async def seen(
    cluster: SimulatedCluster, node: SimulatedNode
) -> list[tuple[int, bool, str | None]]:
    """The node's devices as the service lists them."""
    devices = (await cluster.coordinator.nodes.get(node.node_id)).devices
    assert devices == await cluster.coordinator.nodes.devices()
    return [(device.index, device.gone, device.job_id) for device in devices]


def indices(node: SimulatedNode, job_id: str) -> list[int]:
    """The devices that a job computes on."""
    return [place.device_index for place in node.running(job_id).assignment.launch.ranks]


async def test_missing_device_is_held_and_not_granted_again(cluster: SimulatedCluster) -> None:
    alpha, first, second = await contended(cluster)
    await with_slots(cluster, alpha, 2)
    assert TOO_SMALL in (await cluster.job(second)).reason
    held = [(0, False, first), (1, False, first), (2, True, first), (3, True, first)]
    assert await seen(cluster, alpha) == held
    assert (await cluster.job(first)).state == "running"
    await cluster.check()
    # The grants go before the node reports its devices again.
    alpha.end(alpha.running(first), Outcome.COMPLETED)
    await cluster.work(2)
    assert (await cluster.job(first)).state == "completed"
    waits = await cluster.job(second)
    assert (waits.state, waits.attempt) == ("queued", 0)
    assert TOO_SMALL in waits.reason
    assert await seen(cluster, alpha) == [(0, False, None), (1, False, None)]
    await cluster.heartbeat(5)
    assert (await cluster.coordinator.nodes.summary()).devices == 2
    third = await cluster.submit(2)
    await cluster.run_until(third, "running")
    await cluster.check()


async def test_devices_name_the_job_that_holds_them(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    job = await cluster.submit(1)
    await cluster.run_until(job, "running")
    name = (await cluster.job(job)).name
    held = [(d.job_id, d.job_name) for d in await cluster.coordinator.nodes.devices()]
    assert held == [(job, name), (None, None)]


async def test_returned_device_is_granted_again(cluster: SimulatedCluster) -> None:
    alpha, first, second = await contended(cluster)
    await with_slots(cluster, alpha, 2)
    await with_slots(cluster, alpha, 4)
    assert [gone for _, gone, _ in await seen(cluster, alpha)] == [False] * 4
    await cluster.finish(first)
    await cluster.run_until(second, "running")
    await cluster.check()


async def test_missing_device_and_lost_node_have_no_readings(cluster: SimulatedCluster) -> None:
    class Measured(SimulatedNode):
        def device_use(self) -> Sequence[DeviceUse]:  # type: ignore[override]
            return [
                DeviceUse(index=i, memory_used=5, utilization=50.0, temperature=40.0, power=9.0)
                for i in range(self.slots)
            ]

    alpha = Measured("alpha", 2)
    await cluster.join(alpha)
    await cluster.connect(alpha)
    await cluster.settle()
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    await with_slots(cluster, alpha, 1)
    await cluster.coordinator.gateway.flush_readings()
    there, gone = (await cluster.coordinator.nodes.get(alpha.node_id)).devices
    assert (there.gone, there.utilization, there.power) == (False, 50.0, 9.0)
    assert (gone.gone, gone.job_id) == (True, job_id)
    readings = (gone.memory_used, gone.utilization, gone.temperature, gone.power)
    assert readings == (None, None, None, None)
    summary = await cluster.coordinator.nodes.summary()
    assert (summary.devices, summary.devices_busy, summary.power) == (2, 2, 9.0)
    await cluster.disconnect(alpha)
    cluster.clock.advance(cluster.options.lost_after_seconds + 1)
    await cluster.settle()
    there, _ = (await cluster.coordinator.nodes.get(alpha.node_id)).devices
    assert (there.memory_used, there.utilization, there.temperature, there.power) == (None,) * 4
    assert (await cluster.coordinator.nodes.summary()).power is None


async def test_elastic_job_leaves_missing_devices(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=4)
    job_id = await cluster.submit(resources={"min_workers": 2, "max_workers": 4})
    await cluster.run_until(job_id, "running")
    begun = {"resumed_from": None, "total_steps": 100, "samples": 9}
    await cluster.report_event(job_id, "started", begun)
    await cluster.heartbeat()
    await with_slots(cluster, alpha, 3)
    await cluster.heartbeat(1000)
    assert (await cluster.job(job_id)).generation == 1, "its ranks there live"
    alpha.running(job_id).fall(3)
    await cluster.heartbeat()
    assert indices(alpha, job_id) == [0, 1, 2]
    assert "continues with 3 workers instead of 4" in (await cluster.job(job_id)).reason
    await cluster.work(2)
    await cluster.heartbeat(5)
    assert await seen(cluster, alpha) == [(i, False, job_id) for i in range(3)]
    await cluster.check()


async def test_job_waits_for_another_after_missing_device(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    await with_slots(cluster, alpha, 1)
    await cluster.finish(job_id, Outcome.FAILED, failure())
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("recovering", 1)
    assert "the whole cluster has 1 CPU slot" in job.reason
    beta = await cluster.add_node("beta", slots=1)
    await cluster.run_until(job_id, "running")
    assert [indices(node, job_id) for node in (alpha, beta)] == [[0], [0]]
    await cluster.check()
