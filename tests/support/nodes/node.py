"""A node from the coordinator's view: its reports, and its desired state."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from support.nodes.channel import MemoryChannel

from trainhall.cluster.ports import Clock
from trainhall.cluster.wire.protocol import (
    Assignment,
    AssignmentReport,
    Desired,
    DeviceInfo,
    DeviceUse,
    HostUse,
    Report,
)


class Node(ABC):
    """One host. What is on its disk survives its agent; the connection does not."""

    agent_version = "test"

    def __init__(self, name: str, *, address: str = "127.0.0.1") -> None:
        self.name = name
        self.address = address
        self.node_id = ""
        self.agents = 0
        """Number of starts of its agent."""
        self.channel: MemoryChannel | None = None
        self.task: asyncio.Task[None] | None = None
        """The gateway's side of the connection."""
        self.revision = 0
        self.removed: list[str] = []

    @property
    @abstractmethod
    def devices(self) -> Sequence[DeviceInfo]:
        """Return its devices."""

    @abstractmethod
    def assignment_reports(self) -> list[AssignmentReport]:
        """Return the state of each attempt on it."""

    @abstractmethod
    def desire(self, assignments: Sequence[Assignment]) -> None:
        """Take up what shall be: complete, so it replaces what was wanted before."""

    def device_use(self) -> list[DeviceUse]:
        return []

    def host_use(self) -> HostUse:
        return HostUse()

    @property
    def connected(self) -> bool:
        return self.channel is not None and self.channel.closed is None

    def report(self, clock: Clock) -> Report:
        return Report(
            agent_version=self.agent_version,
            agent_id=f"{self.name}-{self.agents}",
            time=clock.now().timestamp(),
            address=self.address,
            devices=list(self.devices),
            device_use=self.device_use(),
            host=self.host_use(),
            assignments=self.assignment_reports(),
            removed=self.removed,
            revision=self.revision,
        )

    def take(self, text: str) -> None:
        """Make what is desired so, as an agent does."""
        desired = Desired.model_validate_json(text)
        self.revision = desired.revision
        # Shared storage is a notion here: what shall go is gone.
        self.removed = desired.remove
        self.desire(desired.assignments)
