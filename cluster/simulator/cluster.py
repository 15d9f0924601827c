"""The hosts of a simulated cluster, their coordinator, and the groups that ranks join."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.agent import Agent
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.host import Host, Ledger
from trainhall.cluster.simulator.network import Link, Server
from trainhall.cluster.simulator.ranks import Group, Storage, Work
from trainhall.cluster.simulator.story import Story
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Launch

H = TypeVar("H", bound=Host)


class Cluster(Ledger, Generic[H]):
    """
    Args:
        clock: of the coordinator, and of the ranks.
        begin: makes the work of ranks that have joined.
    """

    server: Server

    def __init__(
        self, seed: int, story: Story, clock: WorldClock, begin: Callable[[Group], Work]
    ) -> None:
        self.seed = seed
        self.story = story
        self.clock = clock
        self.storage = Storage()
        self.hosts: list[H] = []
        self._begin = begin
        self._groups: dict[FencingToken, Group] = {}

    def link(self, name: str) -> Link:
        return Link(name, chance.stream(self.seed, "link", name), self.story)

    def _add(self, kind: type[H], name: str, slots: int, clock: WorldClock, **more: Any) -> H:
        """Add a host; its agent joins on its own."""
        host = kind(
            name=name,
            slots=slots,
            clock=clock,
            server=self.server,
            link=self.link(name),
            storage=self.storage,
            story=self.story,
            chance=chance.stream(self.seed, name),
            ledger=self,
            make_agent=Agent,
            **more,
        )
        self.hosts.append(host)
        host.start_agent()
        return host

    def group(self, launch: Launch) -> Group:
        token = launch.token
        if token not in self._groups:
            random = chance.stream(self.seed, "group", *token)
            self._groups[token] = Group(launch, self.storage, random, self.clock, self, self._begin)
        return self._groups[token]

    async def kill_agents(self) -> None:
        for host in self.hosts:
            await host.kill_agent()
