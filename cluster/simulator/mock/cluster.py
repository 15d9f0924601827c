"""A cluster without faults of its own: its hosts, its coordinator, and what befalls its jobs."""

import asyncio
from collections.abc import Callable, Collection

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.cluster import Cluster
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.loop import Process
from trainhall.cluster.simulator.mock.host import GpuHost
from trainhall.cluster.simulator.network import Server
from trainhall.cluster.simulator.ranks import Fate, Group, Work
from trainhall.cluster.simulator.shim import Folder, Machine
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.simulator.workload.script import Script
from trainhall.cluster.simulator.workload.training import Training
from trainhall.training.link.launch import Launch

POLL_SECONDS, SHIP_SECONDS = 1.0, (0.8, 1.2)
DELAY_SECONDS = (0.0002, 0.002)


class _NoStory(Story):
    def log(self, who: str, what: str) -> None:
        """Keep nothing: it runs for days."""


class SimulatedCluster(Cluster[GpuHost]):
    """
    Args:
        fate: what goes wrong in an attempt, if anything.
        broke: called with an error that no coordinator should raise.
        poll_seconds, ship_seconds: see `Host`.
    """

    def __init__(
        self,
        clock: WorldClock,
        *,
        seed: int,
        fate: Callable[[Launch], Fate | None],
        broke: Callable[[BaseException], None],
        poll_seconds: float = POLL_SECONDS,
        ship_seconds: tuple[float, float] = SHIP_SECONDS,
    ) -> None:
        super().__init__(seed, _NoStory(lambda: 0.0), clock, _begin)
        self.server = Server(lambda _: None, broke)
        self.poll_seconds, self.ship_seconds = poll_seconds, ship_seconds
        self._fate = fate

    @property
    def coordinator(self) -> Coordinator:
        assert self.server.coordinator is not None
        return self.server.coordinator

    def serve(self, coordinator: Coordinator) -> None:
        """Connect agents to this coordinator."""
        self.server.open(Process("coordinator"), coordinator)

    def add_host(self, name: str, *, num_gpus: int = 8) -> GpuHost:
        """Add a host; its agent joins on its own."""
        address = f"10.0.0.{11 + len(self.hosts)}"
        host = self._add(GpuHost, name, num_gpus, self.clock, address=address)
        host.link.delay = DELAY_SECONDS
        host.poll_seconds, host.ship_seconds = self.poll_seconds, self.ship_seconds
        return host

    def fate(self, machine: Machine, launch: Launch, rank: int) -> Fate | None:
        fate = self._fate(launch) if launch.generation == 1 else None
        return fate if fate is not None and fate.rank == rank else None

    def forgets(self, host: Host, folder: Folder) -> None:
        launch = folder.launch
        for token, group in list(self._groups.items()):
            if token[:2] == (launch.job_id, launch.attempt) and not group.ranks:
                del self._groups[token]

    def forget(self, job_ids: Collection[str]) -> None:
        """Drop what is kept of jobs that are gone, so that no memory fills up."""
        for job_id in job_ids:
            self.storage.committed.pop(job_id, None)
            for host in self.hosts:
                host.disk.launched.pop(job_id, None)
        for token, group in list(self._groups.items()):
            if token.job_id in job_ids and not group.ranks:
                del self._groups[token]

    def rejoins(self, host: Host) -> bool:
        """Drop a host that a user removes: it is gone until it is added again."""
        self.hosts = [other for other in self.hosts if other is not host]
        return False

    async def reconnect(self, host: Host) -> None:
        host.link.heal()
        if not host.powered:
            host.power_on()

    def hurry(self) -> None:
        """Poll and ship as often as a viewer expects."""
        self.poll_seconds, self.ship_seconds = POLL_SECONDS, SHIP_SECONDS
        for host in self.hosts:
            host.poll_seconds, host.ship_seconds = POLL_SECONDS, SHIP_SECONDS

    async def connected(self) -> None:
        """Wait until all hosts are connected that are to be."""
        for host in self.hosts:
            while host.powered and not (host.link.parted or host.is_connected):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def start_agents(self) -> None:
        for host in self.hosts:
            if host.powered:
                host.start_agent()


def _begin(group: Group) -> Work:
    return Script(group) if group.launch.spec.script is not None else Training(group)
