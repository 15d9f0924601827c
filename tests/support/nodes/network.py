"""A coordinator and its nodes, connected in memory."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from support.nodes.channel import MemoryChannel
from support.nodes.node import Node

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.ports import Clock
from trainhall.cluster.wire.protocol import JoinRequest

N = TypeVar("N", bound=Node)


class Network(Generic[N]):
    """Nothing runs in the background: `settle` lets everything happen that follows from the
    present. Once the coordinator was started its own tasks do that part.

    Args:
        on_sent: called when the gateway has sent something to any node.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.clock = clock
        self.nodes: dict[str, N] = {}
        self._on_sent = on_sent

    async def join(self, node: N) -> None:
        """The host joins with a token of its own."""
        registered = await self.coordinator.nodes.register(node.name)
        reply = await self.coordinator.nodes.join(
            JoinRequest(
                join_token=registered.join_token,
                name=node.name,
                address=node.address,
                agent_version=node.agent_version,
                devices=list(node.devices),
            )
        )
        node.node_id = reply.node_id
        self.nodes[node.node_id] = node

    async def connect(self, node: N, *, new_agent: bool = True) -> None:
        await self.disconnect(node)
        if new_agent:
            node.agents += 1
        node.revision = 0
        node.channel = MemoryChannel(self._on_sent)
        node.channel.to_gateway.put_nowait(node.report(self.clock).model_dump_json())
        node.task = asyncio.create_task(
            self.coordinator.gateway.serve(node.channel, node.node_id), name=f"serve {node.name}"
        )

    async def disconnect(self, node: N) -> None:
        """The connection breaks; what runs on the node does not."""
        if node.channel is not None:
            node.channel.drop()
        if node.task is not None:
            await node.task
        node.channel = node.task = None

    def send_report(self, node: N) -> None:
        if node.channel is not None and node.channel.closed is None:
            node.channel.to_gateway.put_nowait(node.report(self.clock).model_dump_json())

    async def deliver(self, node: N) -> bool:
        """Hand the node all that was sent to it; it answers with a report."""
        channel = node.channel
        if channel is None or not channel.to_node:
            return False
        while channel.to_node:
            node.take(channel.to_node.popleft())
        self.send_report(node)
        return True

    async def exchanged(self) -> None:
        """Until the gateway has taken all reports and told all there is to tell."""
        while True:
            await asyncio.sleep(0)
            idle = self.coordinator.gateway.quiet and all(
                node.task is None
                or node.task.done()
                or (node.channel is not None and node.channel.waiting)
                for node in self.nodes.values()
            )
            if idle:
                return
            await asyncio.sleep(0.0005)

    async def settle(self) -> None:
        """Everything that follows from the present, without the ranks taking a step."""
        while True:
            await self.exchanged()
            await self.coordinator.reconciler.settle()
            await self.exchanged()
            if not any([await self.deliver(node) for node in self.nodes.values()]):
                return

    async def close(self) -> None:
        for node in self.nodes.values():
            await self.disconnect(node)
        await self.coordinator.checkpoints.verification.stop()
