"""The coordinator's background work under the real clock: it reacts at once, or not at all."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.cluster.simulated import SimulatedNode, spec
from support.nodes.channel import MemoryChannel

from trainhall.cluster.background_tasks import BackgroundTasks
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import SystemClock
from trainhall.cluster.wire.protocol import Desired, JoinRequest
from trainhall.db.database import Database


class ReadChannel(MemoryChannel):
    """A channel whose node waits for the next message."""

    def __init__(self) -> None:
        super().__init__(on_sent=self._notify)
        self._sent = asyncio.Event()

    def _notify(self) -> None:
        self._sent.set()

    async def next_desired(self) -> Desired:
        async with asyncio.timeout(60):
            while not self.to_node:
                self._sent.clear()
                await self._sent.wait()
        return Desired.model_validate_json(self.to_node.popleft())


@pytest.mark.side_by_side
async def test_a_submitted_job_reaches_its_node_at_once(database: Database, tmp_path: Path) -> None:
    died: list[str] = []
    coordinator = Coordinator(
        database,
        data_dir=tmp_path,
        options=ClusterOptions(tick_seconds=600),  # no tick brings what an event must
        on_fatal=lambda name, error: died.append(name),
    )
    await coordinator.start()
    registered = await coordinator.nodes.register("alpha")
    node = SimulatedNode("alpha", 2)
    reply = await coordinator.nodes.join(
        JoinRequest(
            join_token=registered.join_token,
            name="alpha",
            address="127.0.0.1",
            agent_version="1",
            devices=node.devices,
        )
    )
    channel = ReadChannel()
    channel.to_gateway.put_nowait(node.report(SystemClock()).model_dump_json())
    serving = asyncio.create_task(coordinator.gateway.serve(channel, reply.node_id))
    assert (await channel.next_desired()).assignments == []
    view, _ = await coordinator.jobs.submit(spec(2))
    desired = await channel.next_desired()
    assert [a.launch.job_id for a in desired.assignments] == [view.id]
    await coordinator.jobs.cancel(view.id)
    assert (await channel.next_desired()).assignments[0].goal == "stop"
    await coordinator.stop()
    await serving
    assert channel.closed is not None
    assert died == []


@pytest.mark.side_by_side
async def test_silent_node_is_lost_without_extra_tick(database: Database, tmp_path: Path) -> None:
    options = ClusterOptions(
        heartbeat_seconds=0.1, suspect_after_seconds=0.2, lost_after_seconds=0.4, tick_seconds=600
    )
    coordinator = Coordinator(database, data_dir=tmp_path, options=options)
    await coordinator.start()
    registered = await coordinator.nodes.register("alpha")
    joining = JoinRequest(
        join_token=registered.join_token,
        name="alpha",
        address="127.0.0.1",
        agent_version="1",
        devices=(node := SimulatedNode("alpha", 1)).devices,
    )
    reply = await coordinator.nodes.join(joining)
    channel = ReadChannel()
    channel.to_gateway.put_nowait(node.report(SystemClock()).model_dump_json())
    serving = asyncio.create_task(coordinator.gateway.serve(channel, reply.node_id))
    await channel.next_desired()
    state = "ready"
    async with asyncio.timeout(60):
        while state != "lost":
            await asyncio.sleep(0.02)
            state = (await coordinator.nodes.get(reply.node_id)).state
    await coordinator.stop()
    await serving


async def test_failed_background_task_is_reported() -> None:
    ended: asyncio.Future[tuple[str, BaseException | None]] = (
        asyncio.get_running_loop().create_future()
    )
    tasks = BackgroundTasks(lambda name, error: ended.set_result((name, error)))

    async def dies() -> None:
        raise RuntimeError("bad luck")

    async def lives() -> None:
        await asyncio.Event().wait()

    tasks.start("lives", lives())
    tasks.start("dies", dies())
    name, error = await asyncio.wait_for(ended, 10)
    assert name == "dies"
    assert isinstance(error, RuntimeError)
    await tasks.stop()


async def test_background_task_that_returns_is_reported() -> None:
    ended = asyncio.Event()
    tasks = BackgroundTasks(lambda name, error: ended.set())

    async def ends() -> None:
        return

    tasks.start("ends", ends())
    await asyncio.wait_for(ended.wait(), 10)
    await tasks.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tick_seconds": 0}, "tick_seconds must be above 0"),
        ({"lost_after_seconds": 10}, "suspect_after .* is 15 where lost_after is 10"),
    ],
)
def test_options_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterOptions(**change)
