"""The network between hosts, users and the coordinator: slow, lossy, out of order, and parted.

What is sent takes a time of its own, so that a later message may come first. A parted link either
loses what is sent or holds it back until it heals, as a stopped process at one of its ends does.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from sqlalchemy.exc import DBAPIError
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from trainhall.cluster.agent.coordinator_link.connection import Socket
from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.agent.options import CredentialRefusedError, RemovedByCoordinatorError
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError, NodeRemovedError, NotAllowedError
from trainhall.cluster.gateway.channel import ChannelClosedError
from trainhall.cluster.simulator.loop import Process, later
from trainhall.cluster.simulator.story import Story

T = TypeVar("T")

DELAY_SECONDS = (0.001, 0.05)
PING_SECONDS = (3.0, 8.0)
"""Until either end of a connection notices that nothing comes through."""
OPEN_SECONDS = 4.0
"""Timeout of a connection without a reply."""
ANSWER_SECONDS = 8.0
"""The same for a request."""

Parting = Literal["loses", "holds"]
Way = Literal["up", "down"]
"""To the coordinator, and from it."""


class Link:
    """The way from one host, or from the users, to the coordinator and back."""

    def __init__(self, name: str, chance: random.Random, story: Story) -> None:
        self.name = name
        self.parted: Parting | None = None
        self.open_way: Way | None = None
        """The way that is not parted, where only one is."""
        self.loss = 0.0
        """The share of messages that get lost."""
        self.doubling = 0.0
        """The share of messages that come twice."""
        self.delay = DELAY_SECONDS
        self.wires: list[Wire] = []
        self._partings = 0
        self._held: list[Callable[[], None]] = []
        self._chance = chance
        self._story = story

    def carry(self, deliver: Callable[[], None], way: Way) -> None:
        """Bring a message to its end, once, twice or never."""
        parted = self._parted(way)
        if parted == "loses" or self._happens(self.loss):
            self._story.faults["message lost"] += 1
        elif parted == "holds":
            self._held.append(deliver)
        else:
            self._later(deliver)
            if self._happens(self.doubling):
                self._story.faults["message doubled"] += 1
                self._later(deliver)

    async def travel(self, way: Way) -> None:
        """Carry a request one way.

        Raises:
            UnavailableError: it was lost.
        """
        parted = self._parted(way)
        if parted == "loses" or self._happens(self.loss):
            self._story.faults["request lost"] += 1
            await asyncio.sleep(self._chance.uniform(1.0, ANSWER_SECONDS))
            raise UnavailableError("no answer")
        if parted == "holds":
            healed = asyncio.Event()
            self._held.append(healed.set)
            await healed.wait()
        await asyncio.sleep(self._chance.uniform(*self.delay))

    def doubles(self) -> bool:
        """Return whether the present request is sent twice."""
        if self._happens(self.doubling):
            self._story.faults["request doubled"] += 1
            return True
        return False

    def part(self, how: Parting, open_way: Way | None = None) -> None:
        self.parted, self.open_way = how, open_way
        self._partings += 1
        number = self._partings
        for wire in self.wires:
            for end in (wire.break_agent, wire.break_gateway):
                later(self._chance.uniform(*PING_SECONDS), self._miss_ping, number, end)

    def _miss_ping(self, number: int, end: Callable[[], None]) -> None:
        if self.parted and self._partings == number:
            end()

    def heal(self) -> None:
        self.parted = self.open_way = None
        held, self._held = self._held, []
        for deliver in held:
            self._later(deliver)

    def calm(self) -> None:
        """End all faults."""
        self.heal()
        self.loss = self.doubling = 0.0
        self.delay = DELAY_SECONDS

    def _parted(self, way: Way) -> Parting | None:
        return None if way == self.open_way else self.parted

    def _later(self, deliver: Callable[[], None]) -> None:
        later(self._chance.uniform(*self.delay), deliver)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._chance.random() < share


class Wire:
    """One connection of an agent with the gateway: a `Channel` at one end, a `Socket` at the other.

    Messages between the two may get lost, doubled and out of order: state is all they carry.
    """

    def __init__(self, link: Link, on_arrival: Callable[[], None]) -> None:
        self._link = link
        self._on_arrival = on_arrival
        self._to_gateway: asyncio.Queue[str | None] = asyncio.Queue()
        self._to_agent: asyncio.Queue[str | Close] = asyncio.Queue()
        # As the other end sees it.
        self._agent_is_there = self._gateway_is_there = True
        link.wires.append(self)

    # -- the agent's end -------------------------------------------------------------------------

    async def send(self, text: str) -> None:
        if not self._gateway_is_there:
            raise ConnectionClosedError(None, None)
        self._link.carry(lambda: self._reach_gateway(text), "up")

    async def recv(self) -> str:
        item = await self._to_agent.get()
        if isinstance(item, Close):
            raise ConnectionClosedError(item, None)
        return item

    def hang_up(self) -> None:
        """Close the agent's end, as it leaves or its process ends."""
        if self in self._link.wires:
            self._link.wires.remove(self)
        self._link.carry(self.break_gateway, "up")

    # -- the gateway's end -----------------------------------------------------------------------

    async def send_text(self, text: str) -> None:
        if not self._agent_is_there:
            raise ChannelClosedError
        self._link.carry(lambda: self._reach_agent(text), "down")

    async def receive_text(self) -> str:
        text = await self._to_gateway.get()
        if text is None:
            raise ChannelClosedError
        return text

    async def close(self, code: int, reason: str) -> None:
        self.end(code, reason)

    def end(self, code: int, reason: str) -> None:
        """Close the gateway's end, as it closes the connection or its process ends."""
        self.break_gateway()
        self._link.carry(lambda: self.break_agent(code, reason), "down")

    def _reach_gateway(self, text: str) -> None:
        if self._agent_is_there:
            self._to_gateway.put_nowait(text)
            self._on_arrival()
        else:
            # No process listens there any more, and the peer is notified.
            self._link.carry(self.break_agent, "down")

    def _reach_agent(self, text: str) -> None:
        if self._gateway_is_there:
            self._to_agent.put_nowait(text)
        else:
            self._link.carry(self.break_gateway, "up")

    # -- what breaks -----------------------------------------------------------------------------

    def break_agent(self, code: int = 1006, reason: str = "") -> None:
        self._gateway_is_there = False
        self._to_agent.put_nowait(Close(code, reason))

    def break_gateway(self) -> None:
        self._agent_is_there = False
        self._to_gateway.put_nowait(None)


class Server:
    """Address of the coordinator, whichever of its processes is there.

    Args:
        on_message: called with a node's id when a message of it arrives.
        broke: called with an error that no coordinator should raise.
    """

    def __init__(
        self, on_message: Callable[[str], None], broke: Callable[[BaseException], None]
    ) -> None:
        self._on_message = on_message
        self._broke = broke
        self.process: Process | None = None
        self.coordinator: Coordinator | None = None
        self._served: list[Wire] = []

    def open(self, process: Process, coordinator: Coordinator) -> None:
        self.process, self.coordinator = process, coordinator

    def close(self) -> None:
        """Close the connections of a process that is gone."""
        self.process = self.coordinator = None
        served, self._served = self._served, []
        for wire in served:
            wire.end(1006, "")

    async def answered(self) -> None:
        """Wait for the end of all that the coordinator was asked to do."""
        while self.process is not None and self.process.tasks:
            await asyncio.wait(list(self.process.tasks))

    @asynccontextmanager
    async def dial(self, link: Link, credential: str) -> AsyncIterator[Socket]:
        """Connect an agent.

        Raises:
            OSError: no listener, or no answer.
            RemovedByCoordinatorError: the node was removed.
            CredentialRefusedError: the coordinator does not know it.
        """
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await link.travel("up")
                node_id = await self._run(lambda c: c.nodes.authenticate(credential))
        except UnavailableError as error:
            raise OSError(str(error)) from None
        except NodeRemovedError as error:
            raise RemovedByCoordinatorError(error.message) from None
        except NotAllowedError as error:
            raise CredentialRefusedError(error.message) from None
        if self.process is None or self.coordinator is None:
            raise OSError("connection refused")
        wire = Wire(link, lambda: self._on_message(node_id))
        self._served.append(wire)
        serving = self.process.spawn(self.coordinator.gateway.serve(wire, node_id), "serve")
        serving.add_done_callback(self._report_crash)
        try:
            yield wire
        finally:
            wire.hang_up()

    async def request(self, link: Link, work: Callable[[Coordinator], Awaitable[T]]) -> T:
        """Send the coordinator a request and wait for the answer.

        Raises:
            UnavailableError: no answer. It may have been done all the same.
        """
        await link.travel("up")
        if link.doubles():
            self._started(work)
        answer = await self._run(work)
        await link.travel("down")
        return answer

    async def _run(self, work: Callable[[Coordinator], Awaitable[T]]) -> T:
        task = self._started(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise UnavailableError("the connection was reset")
        error = task.exception()
        if isinstance(error, DBAPIError):
            raise UnavailableError(f"503: {error.orig}")
        return task.result()

    def _started(self, work: Callable[[Coordinator], Awaitable[T]]) -> "asyncio.Task[T]":
        if self.process is None or self.coordinator is None:
            raise UnavailableError("connection refused")

        async def do(coordinator: Coordinator) -> T:
            return await work(coordinator)

        task = self.process.spawn(do(self.coordinator), "request")
        task.add_done_callback(self._report_crash)
        return task

    def _report_crash(self, done: "asyncio.Task[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, (ClusterError, DBAPIError)):
            self._broke(error)
