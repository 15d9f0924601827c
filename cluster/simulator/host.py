"""A host: its disk, its devices, and the processes that run on it."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.loop import Process
from trainhall.cluster.simulator.network import Link, Server
from trainhall.cluster.simulator.ranks import Storage
from trainhall.cluster.simulator.shim import Folder, Shim, ShimObserver
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.wire.protocol import Desired, DeviceInfo, DeviceUse, HostUse
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Launch
from trainhall.training.spec.plan import ChosenPlan

POLL_SECONDS = 1.0
"""Between two polls of the shims where none rings: one that was killed does not."""
SHIP_SECONDS = (2.0, 8.0)
"""Between two polls for what the ranks of an attempt wrote; its end rings."""
LOST_FOLDERS = 0.5
"""The share of attempts' folders that a power cut takes: unlike what an agent notes before it
launches, they are not written through."""


@dataclass
class HostDisk:
    credential: str = ""
    launched: dict[str, FencingToken] = field(default_factory=dict)
    """The newest token that was ever launched here, by job."""
    folders: dict[FencingToken, Folder] = field(default_factory=dict)
    """By the token with which the attempt began here: its launch may be of a later generation."""


class HostAgent(Protocol):
    """One process of a host's agent."""

    process: Process

    @property
    def is_connected(self) -> bool: ...

    async def leave(self) -> None:
        """Report that it ends."""

    def ring(self) -> None:
        """Note that there is something to poll."""

    def ship(self) -> None:
        """Note that there is something to ship."""


class Ledger(ShimObserver):
    """A host's surroundings, with hooks that observe its agent, too."""

    def forgets(self, host: "Host", folder: Folder) -> None: ...

    def agent_takes(self, host: "Host", desired: Desired) -> None: ...

    def agent_runs_again(self) -> None:
        """Note that an agent was sent an attempt that another has launched."""

    def accepted(self, token: FencingToken, *, again: bool) -> None: ...

    def rejoins(self, host: "Host") -> bool:
        """Return whether a host that was removed, and on which nothing runs, joins again."""
        return True


@dataclass(kw_only=True, eq=False)
class Host:
    """A machine of the cluster."""

    agent_version = "simulated"
    poll_seconds = POLL_SECONDS
    ship_seconds = SHIP_SECONDS
    name: str
    slots: int
    """Number of its devices."""
    clock: WorldClock
    server: Server
    link: Link
    storage: Storage
    story: Story
    chance: random.Random
    ledger: Ledger
    make_agent: Callable[["Host", str], HostAgent]
    """Starts a process of its agent."""
    address: str = ""

    def __post_init__(self) -> None:
        self.address = self.address or self.name
        self.disk = HostDisk()
        self.node_id = ""
        self.powered = True
        self.power_cuts = 0
        self.agent: HostAgent | None = None
        self.agents = 0
        self.devices: Sequence[DeviceInfo] = [
            DeviceInfo(index=i, kind="cuda", name="simulated", memory_total=1)
            for i in range(self.slots)
        ]

    @property
    def is_connected(self) -> bool:
        return self.agent is not None and self.agent.is_connected

    def device_use(self) -> list[DeviceUse]:
        return []

    def host_use(self) -> HostUse:
        return HostUse()

    def plan(self, launch: Launch) -> ChosenPlan:
        """Plan the strategy of a job that leaves it open.

        Raises:
            PlanningFailedError: nothing fits.
        """
        raise NotImplementedError

    # -- processes -------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self.agents += 1
        self.agent = self.make_agent(self, f"{self.name}-{self.agents}")
        self.story.log(self.name, f"agent {self.agents} starts")

    async def kill_agent(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            await agent.process.kill()

    async def end_agent(self) -> None:
        """End the agent as SIGTERM does; its ranks continue."""
        agent = self.agent
        if agent is not None:
            await asyncio.wait([agent.process.spawn(agent.leave(), "leave")])
        if self.agent is agent:
            await self.kill_agent()

    async def power_off(self, lost_folders: float = LOST_FOLDERS) -> None:
        """Stop everything where it stands; the disk keeps what was written through to it."""
        self.powered = False
        self.power_cuts += 1
        await self.kill_agent()
        for shim in self.shims():
            shim.die(with_ranks=True, silently=True)
        for token in list(self.disk.folders):
            if self.chance.random() < lost_folders:
                self.story.log(self.name, f"lost the folder of job {token[0]} attempt {token[1]}")
                self.remove_folder(token)

    def power_on(self) -> None:
        self.powered = True
        self.start_agent()

    def shims(self) -> list[Shim]:
        """Return the shims that are alive, or whose ranks are."""
        shims = [f.shim for f in self.disk.folders.values() if f.shim is not None]
        return [shim for shim in shims if shim.alive or shim.running]

    def remove_folder(self, token: FencingToken) -> None:
        folder = self.disk.folders.pop(token, None)
        if folder is not None:
            self.ledger.forgets(self, folder)

    def start_shim(self, token: FencingToken, folder: Folder, power_cuts: int) -> None:
        """Start a shim; the first to take the folder stays the only one.

        Args:
            power_cuts: how many there were when it was on its way.
        """
        if folder.shim is not None or self.disk.folders.get(token) is not folder:
            return
        if power_cuts != self.power_cuts:
            return
        folder.shim = Shim(folder, self)
        folder.shim.start()

    # -- what a shim needs of it -----------------------------------------------------------------

    def ring(self) -> None:
        if self.agent is not None:
            self.agent.ring()

    def wrote(self) -> None:
        if self.agent is not None:
            self.agent.ship()
