"""A wrong message of an agent is refused with its reason, and harms no other agent."""

import asyncio
import json

import pytest
from support.cluster.simulated import SimulatedCluster, SimulatedNode
from support.nodes.channel import MemoryChannel

from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.wire.protocol import CloseCode


async def refused(cluster: SimulatedCluster, node: SimulatedNode, *texts: str) -> tuple[int, str]:
    channel = MemoryChannel()
    for text in texts:
        channel.to_gateway.put_nowait(text)
    await asyncio.wait_for(cluster.coordinator.gateway.serve(channel, node.node_id), 10)
    assert channel.closed is not None
    return channel.closed


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"type":"report"}', "1", "null"])
async def test_gateway_refuses_malformed_reports(cluster: SimulatedCluster, text: str) -> None:
    node = await cluster.add_node("alpha")
    code, reason = await refused(cluster, node, text)
    assert code == CloseCode.INVALID
    assert "not a report" in reason
    await cluster.heartbeat()


async def test_gateway_reports_an_error_while_receiving(cluster: SimulatedCluster) -> None:
    class Faulty(MemoryChannel):
        async def receive_text(self) -> str:
            text = await super().receive_text()
            if text == "a fault":
                raise ZeroDivisionError(text)
            return text

    node = await cluster.add_node("alpha")
    channel = Faulty()
    for text in (node.report(cluster.clock).model_dump_json(), "a fault"):
        channel.to_gateway.put_nowait(text)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(cluster.coordinator.gateway.serve(channel, node.node_id), 10)


async def test_gateway_checks_the_version_first(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    code, reason = await refused(cluster, node, json.dumps({"protocol_version": 2, "new": 1}))
    assert code == CloseCode.PROTOCOL
    assert "upgrade the coordinator" in reason


async def test_gateway_closes_a_connection_without_report(cluster: SimulatedCluster) -> None:
    cluster.options = ClusterOptions(hello_seconds=0.01)
    node = await cluster.add_node("alpha")
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    code, reason = await refused(cluster, node)
    assert code == CloseCode.NO_REPORT
    assert "no report" in reason


async def test_gateway_notifies_a_removed_node(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    await cluster.coordinator.nodes.remove(node.node_id)
    await cluster.settle()
    assert node.channel is not None
    assert node.channel.closed is not None
    assert node.channel.closed[0] == CloseCode.REMOVED
    code, _ = await refused(cluster, node, node.report(cluster.clock).model_dump_json())
    assert code == CloseCode.REMOVED


async def test_stopping_coordinator_notifies_agents(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    await cluster.coordinator.stop()
    assert node.channel is not None
    assert node.channel.closed is not None
    assert node.channel.closed[0] == CloseCode.STOPPING
    code, _ = await refused(cluster, node, node.report(cluster.clock).model_dump_json())
    assert code == CloseCode.STOPPING


async def test_readings_are_stored_together(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 1)
    report = node.report(cluster.clock).model_dump()
    report["device_use"] = [
        {"index": 0, "utilization": 51.5, "memory_used": 7, "power": float("inf")}
    ]
    assert node.channel is not None
    node.channel.to_gateway.put_nowait(json.dumps(report).replace("Infinity", "1e400"))
    await cluster.exchanged()
    await cluster.coordinator.gateway.flush_readings()
    if node.channel.closed is None:
        (device,) = await cluster.coordinator.nodes.devices()
        assert (device.utilization, device.memory_used, device.power) == (51.5, 7, None)
    else:
        assert node.channel.closed[0] == CloseCode.INVALID


async def test_reading_beyond_any_device_counts_as_none(cluster: SimulatedCluster) -> None:
    """As drivers have it that report -1 as an unsigned number."""
    node = await cluster.add_node("alpha", 1)
    report = node.report(cluster.clock).model_dump()
    report["device_use"] = [{"index": 0, "utilization": 5.0, "memory_used": 2**64 - 1}]
    assert node.channel is not None
    node.channel.to_gateway.put_nowait(json.dumps(report))
    await cluster.exchanged()
    await cluster.coordinator.gateway.flush_readings()
    (device,) = await cluster.coordinator.nodes.devices()
    assert (device.utilization, device.memory_used) == (5.0, None)


async def test_fewer_devices_after_a_restart(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 3)
    job_id = await cluster.submit(workers=3)
    await cluster.run_until(job_id, "running")
    node.slots = 1
    await cluster.connect(node)
    await cluster.settle()
    assert len(await cluster.coordinator.nodes.devices()) == 3, "held ones stay until they are free"
    await cluster.finish(job_id)
    await cluster.connect(node)
    await cluster.settle()
    assert len(await cluster.coordinator.nodes.devices()) == 1
