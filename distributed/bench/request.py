"""Requests to measure, and the ranks' results. Without torch, for the command line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainhall.distributed.collectives.algorithms.registry import all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.cost import Cluster, Link, LinkClass, predict
from trainhall.distributed.collectives.schedule import Leg, Round, Schedule, placed, placed_legs

NATIVE = "native"
SCATTERED = "ring_round_robin"
"""A ring whose neighbours are never on one host."""
SCHEDULES = ("ring", "tree", "halving_doubling", "hierarchical")
UNBUCKETED = "unbucketed"
"""The native sum of all gradients at once, after the backward pass."""
COMPRESSIONS = {"fp16": 1.0, "topk": 0.01, "powersgd": 0.01}
"""With the ratio of each."""

Hosts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Scenario:
    """Ranks on hosts, and what lies between these."""

    name: str
    hosts: Hosts
    sizes: tuple[int, ...]
    """In bytes, of the tensors that schedules combine."""
    bits_per_second: float | None = None
    """Send bandwidth of each host; None for loopback."""

    @property
    def ranks(self) -> int:
        return sum(map(len, self.hosts))

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that are compared."""
        return (NATIVE, *SCHEDULES, *([SCATTERED] if len(self.hosts) > 1 else []))


@dataclass(frozen=True)
class Time:
    """One all-reduce of `size` bytes."""

    method: str
    size: int
    seconds: float
    """Median over rounds of the slowest rank's."""
    by_native: float
    """Median over rounds of this method's time by the native one's."""


@dataclass(frozen=True)
class Sync:
    """The gradients of a ResNet-18 combined once, in buckets."""

    method: str
    seconds: float
    """All buckets at once, one after another."""
    own_seconds: float
    """The part of these that the compression itself took: to select, to pack and to unpack."""
    exposed_seconds: float
    """The wait that is left when a backward pass of `backward_seconds` has ended, in which
    the buckets become ready one by one."""


@dataclass(frozen=True)
class Measurements:
    links: Mapping[LinkClass, Link]
    times: Sequence[Time]
    syncs: Sequence[Sync]
    backward_seconds: float
    gradient_bytes: int
    """Size of the ResNet-18's gradients."""

    def step_seconds(self, sync: Sync) -> float:
        """Return the time of a backward pass and of the wait after it."""
        return self.backward_seconds + max(0.0, sync.exposed_seconds)


def schedule(method: str, hosts: Hosts) -> Schedule:
    """Return a method's schedule; for the native one Gloo's, a ring."""
    world_size = sum(map(len, hosts))
    if method == NATIVE:
        return Ring(world_size)
    if method == SCATTERED:
        return _ByHosts(
            world_size, tuple(rank for ranks in zip(*hosts, strict=True) for rank in ranks)
        )
    return all_reduce(method, world_size, hosts=hosts)


def predicted(method: str, scenario: Scenario, links: Mapping[LinkClass, Link], size: int) -> float:
    """Predict seconds of an all-reduce, by the cost model and the measured links."""
    some = next(iter(links.values()))
    cluster = Cluster(
        world_size=scenario.ranks,
        devices_per_host=len(scenario.hosts[0]),
        links={kind: links.get(kind, some) for kind in LinkClass},
    )
    return float(predict(schedule(method, scenario.hosts), cluster, [size])[0])


@dataclass(frozen=True)
class _ByHosts(Schedule):
    """A ring in another order than that of the ranks."""

    algorithm = "ring"

    order: tuple[int, ...]

    @property
    def chunks(self) -> int:
        return self.world_size

    def rounds(self, rank: int) -> Iterator[Round]:
        yield from placed(
            Ring(self.world_size).rounds(self.order.index(rank)), members=self.order, first=0
        )

    def legs(self) -> Iterator[Leg]:
        yield from placed_legs(Ring(self.world_size).legs(), self.order)
