"""Hosts, what runs on them, and the coordinator: everything moves when a turn is taken."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.gateway.channel import CloseCode
from trainhall.cluster.ports import Clock
from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.attempts import token_of
from trainhall.cluster.simulator.mock.host import Host
from trainhall.cluster.simulator.mock.network import Network
from trainhall.cluster.simulator.workload.script import Script
from trainhall.cluster.simulator.workload.training import Training
from trainhall.cluster.simulator.workload.work import Fate, Group, Work
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Launch

T = TypeVar("T")


class SimulatedCluster(Network[Host]):
    """A turn: messages are taken, time's work is done, hosts report, and ship what was written.

    Args:
        fate: what goes wrong in an attempt, if anything.
        on_sent: called when the gateway has sent something to any node.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        *,
        seed: int = 0,
        fate: Callable[[Launch], Fate | None] = lambda _: None,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(coordinator, clock, on_sent)
        self.seed = seed
        self._fate = fate
        self._groups: dict[FencingToken, Group] = {}

    async def add_host(self, name: str, *, num_gpus: int = 8) -> Host:
        """A host that joins and connects."""
        number = len(self.nodes) + 1
        host = Host(
            name,
            address=f"10.0.0.{10 + number}",
            clock=self.clock,
            chance=chance.stream(self.seed, "host", name),
            group=self.group,
            num_gpus=num_gpus,
        )
        await self.join(host)
        await self.connect(host)
        return host

    def group(self, launch: Launch) -> Group:
        """Return the process group of an attempt's ranks, from all its hosts."""
        token = token_of(launch)
        found = self._groups.get(token)
        if found is None:
            found = Group(
                launch, _begin, chance.stream(self.seed, "group", *token), self._fate(launch)
            )
            self._groups[token] = found
        return found

    @property
    def due(self) -> float:
        """When something beside ordinary steps happens next (seconds since the epoch)."""
        hosts = [host.due for host in self.nodes.values() if not host.off]
        groups = [group.due for group in self._groups.values()]
        return min([*hosts, *groups], default=inf)

    def advance(self) -> None:
        """Do the work of the time that has passed."""
        now = self.clock.now().timestamp()
        for host in self.nodes.values():
            host.advance()
        for token, group in list(self._groups.items()):
            group.advance(now)
            if group.over:
                del self._groups[token]

    async def turn(self) -> None:
        """Run everything that follows from the present state."""
        self.report_all()
        while True:
            await self.settle()
            self.advance()
            await self.ship(metrics=False)
            if not await self.exchange(inf):
                return

    async def exchange(self, heartbeat_seconds: float = 0.0) -> bool:
        """Hand out messages, and report what is new, or was not said for so long; True when
        there was anything new."""
        new = False
        now = self.clock.monotonic()
        for host in list(self.nodes.values()):
            await self._see_to_connection(host)
            if not host.connected:
                continue
            new |= await self.deliver(host)
            if (news := host.news()) or now - host.reported_at >= heartbeat_seconds:
                host.reported_at = now
                self.send_report(host)
                new |= news
        return new

    async def _see_to_connection(self, host: Host) -> None:
        """Remove a removed host; reconnect one whose connection was closed otherwise."""
        if host.channel is None or host.channel.closed is None:
            return
        code, _ = host.channel.closed
        if code == CloseCode.REMOVED:
            await self.disconnect(host)
            del self.nodes[host.node_id]
        elif code != CloseCode.STOPPING:
            await self.connect(host, new_agent=False)

    @property
    def silent(self) -> bool:
        """Return whether some host is unreachable, so that time alone has consequences."""
        return any(not host.connected for host in self.nodes.values())

    def report_all(self) -> None:
        """Have every connected host report now."""
        for host in self.nodes.values():
            host.reported_at = self.clock.monotonic()
            self.send_report(host)

    async def ship(self, *, metrics: bool = True) -> None:
        """Have connected hosts send their ranks' output."""
        spools = [
            spool.ship(self._send, metrics=metrics or attempt.outcome is not None)
            for host in self.nodes.values()
            if host.connected
            for attempt in host.attempts.values()
            for spool in attempt.spools.values()
            if not spool.empty
        ]
        await asyncio.gather(*spools)

    async def _send(self, work: Callable[[Coordinator], Awaitable[T]]) -> T:
        """A request in memory, which always arrives."""
        return await work(self.coordinator)

    async def cut_off(self, host: Host) -> None:
        """Cut off a host: its ranks run on."""
        await self.disconnect(host)

    async def switch_off(self, host: Host) -> None:
        host.switch_off()
        await self.disconnect(host)

    async def come_back(self, host: Host) -> None:
        """Reconnect a host, with a new agent if its power was gone."""
        was_off = host.off
        if was_off:
            host.switch_on()
        await self.connect(host, new_agent=was_off)


def _begin(group: Group, now: float) -> Work:
    kind = Script if group.launch.spec.script is not None else Training
    return kind(group, now)
