"""Cost of a collective: the α–β model, with a link for each distance between ranks.

A message of m bytes takes α + m·β seconds: a latency, and the time on a link of 1/β bytes a
second (Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
Computing 20, 1994). Three things are added to it:

- Links between hosts belong to the host: what its ranks send in one round shares the bandwidth,
  and so does what they receive. Within a host every pair of ranks has a link of its own.
- What comes the other way at the same time may cost something too (`Link.one_way`): where a
  message takes the processors of its two ranks, a rank that sends and receives has twice the work.
- Rounds are taken to be in lockstep: each lasts as long as its slowest message.

Adding numbers is taken to be free, since it overlaps with receiving.

`predict` adds up the formula of an algorithm (`Schedule.legs`); `walk` the messages of every rank's
rounds. Both give the same, and the first is quick at thousands of ranks.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import Leg, Pairs, Schedule

Seconds = npt.NDArray[np.float64]


class LinkClass(StrEnum):
    """The distance between two ranks."""

    DEVICE = "device"
    """They share a device."""
    HOST = "host"
    RACK = "rack"
    """They are on two hosts of one rack."""
    RACKS = "racks"
    """They are in two racks."""


@dataclass(frozen=True)
class Link:
    latency: float
    """α, in seconds."""
    bandwidth: float
    """1/β, in bytes a second; that of a host, for links between hosts. There is as much the other
    way at the same time."""
    one_way: float | None = None
    """The bandwidth while nothing comes the other way; None: the same."""

    def seconds(self, there: Seconds, back: Seconds) -> Seconds:
        """Return the time of messages.

        Args:
            there: bytes that pass the link in the direction of each message.
            back: those that pass it the other way meanwhile.
        """
        alone = self.one_way or self.bandwidth
        return self.latency + there / alone + back * (1 / self.bandwidth - 1 / alone)


EXAMPLE_LINKS = {
    LinkClass.DEVICE: Link(2e-6, 400e9),
    LinkClass.HOST: Link(4e-6, 100e9),
    LinkClass.RACK: Link(10e-6, 12.5e9),
    LinkClass.RACKS: Link(20e-6, 3.125e9),
}
"""The order of magnitude of GPUs with fast links between them, hosts at 100 Gbit/s, and racks that
leave each host 25 Gbit/s. For numbers to rely on, measure your own."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The position of ranks: they fill devices, hosts and racks in order, the last ones perhaps in
    part.

    Raises:
        ScheduleError: a number is not positive, or a link is missing.
    """

    world_size: int
    ranks_per_device: int = 1
    devices_per_host: int = 8
    hosts_per_rack: int = 8
    links: Mapping[LinkClass, Link] = field(default_factory=lambda: dict(EXAMPLE_LINKS))

    def __post_init__(self) -> None:
        for name in ("world_size", "ranks_per_device", "devices_per_host", "hosts_per_rack"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if missing := [str(kind) for kind in LinkClass if kind not in self.links]:
            raise ScheduleError(f"no link is given for {', '.join(missing)}")

    @property
    def ranks_per_host(self) -> int:
        return self.ranks_per_device * self.devices_per_host

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of each host."""
        size, each = self.world_size, self.ranks_per_host
        return tuple(tuple(range(a, min(a + each, size))) for a in range(0, size, each))

    @cached_property
    def _links(self) -> list[Link]:
        return [self.links[kind] for kind in LinkClass]

    def between(self, pairs: Pairs) -> npt.NDArray[np.int64]:
        """Return the `LinkClass` index of the link between the ranks of each pair."""
        device = pairs // self.ranks_per_device
        host = device // self.devices_per_host
        rack = host // self.hosts_per_rack
        differ = [unit[:, 0] != unit[:, 1] for unit in (device, host, rack)]
        kinds: npt.NDArray[np.int64] = np.sum(differ, axis=0, dtype=np.int64)
        return kinds

    def round_seconds(self, pairs: Pairs, sizes: npt.NDArray[Any]) -> float:
        """Return the time of messages that are sent at once: `sizes` in bytes, one for each
        pair."""
        kinds = self.between(pairs)
        there, back = self._on_links(pairs, kinds, np.asarray(sizes, dtype=np.float64))
        return max(
            float(self._links[kind].seconds(there[of_kind], back[of_kind]).max())
            for kind, of_kind in _by_kind(kinds)
        )

    def leg_seconds(self, leg: Leg, sizes: Seconds) -> Seconds:
        """Return the time of a leg, for tensors of each of `sizes` bytes."""
        kinds = self.between(leg.pairs)
        there, back = self._on_links(leg.pairs, kinds, np.full(len(leg.pairs), float(leg.share)))
        slowest = np.zeros_like(sizes)
        for kind, of_kind in _by_kind(kinds):
            # Thousands of messages are of few kinds, with few different loads on their links.
            for loads in np.unique(np.stack([there[of_kind], back[of_kind]], axis=1), axis=0):
                seconds = self._links[kind].seconds(*(sizes * load for load in loads))
                slowest = np.maximum(slowest, seconds)
        return leg.times * slowest

    def _on_links(
        self, pairs: Pairs, kinds: npt.NDArray[np.int64], sizes: Seconds
    ) -> tuple[Seconds, Seconds]:
        """Return, for each message, the bytes that pass its link in this round: its own within a
        host, those of the fuller of both hosts between two; and the bytes that one of its ends,
        rank or host, sends as well as receives."""
        crosses = (kinds > 1)[:, np.newaxis]
        hosts = pairs // self.ranks_per_host + self.world_size
        ends = np.where(crosses, hosts, pairs)
        count = int(ends.max()) + 1
        out, into = (np.bincount(ends[:, side], sizes, count) for side in (0, 1))
        both = np.minimum(out, into)
        source, destination = ends.T
        return (
            np.maximum(out[source], into[destination]),
            np.maximum(both[source], both[destination]),
        )


def _by_kind(kinds: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
    """Yield the classes that exist, as indexes of `LinkClass`, and each one's messages."""
    for kind in range(len(LinkClass)):
        if (of_kind := kinds == kind).any():
            yield kind, of_kind


def predict(schedule: Schedule, cluster: Cluster, sizes: npt.ArrayLike) -> Seconds:
    """Predict seconds for tensors of each of `sizes` bytes, by the algorithm's formula."""
    of_sizes = np.asarray(sizes, dtype=np.float64)
    return sum((cluster.leg_seconds(leg, of_sizes) for leg in schedule.legs()), start=of_sizes * 0)


def walk(schedule: Schedule, cluster: Cluster, size: int) -> float:
    """Predict seconds for a tensor of `size` bytes, cut evenly, from every rank's rounds."""
    messages: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for rank in range(schedule.world_size):
        for r in schedule.rounds(rank):
            if r.send:
                share = len(r.send.chunks) / schedule.chunks
                messages[r.number].append((rank, r.send.peer, share * size))
    seconds = 0.0
    for sent in messages.values():
        sources, destinations, sizes = zip(*sent, strict=True)
        pairs = np.array([sources, destinations]).T
        seconds += cluster.round_seconds(pairs, np.array(sizes))
    return seconds


@dataclass(frozen=True)
class Crossover:
    """From `size` bytes on, another algorithm is the fastest."""

    size: float
    below: str
    above: str


def crossovers(sizes: Sequence[float] | Seconds, seconds: Mapping[str, Seconds]) -> list[Crossover]:
    """Return the sizes at which the fastest algorithm changes.

    Between two neighbouring sizes times are taken as straight lines, as they are in the model but
    for the few sizes where another message of a round becomes its slowest.

    Args:
        seconds: by algorithm, one for each of `sizes`, which rise.
    """
    names = list(seconds)
    table = np.array([seconds[name] for name in names])
    fastest = table.argmin(axis=0)
    found = []
    for i, j in pairwise(range(len(sizes))):
        before, after = fastest[i], fastest[j]
        if before != after:
            lead, lag = table[after, i] - table[before, i], table[before, j] - table[after, j]
            share = lead / (lead + lag) if lead + lag > 0 else 0.0
            size = sizes[i] + share * (sizes[j] - sizes[i])
            found.append(Crossover(float(size), names[before], names[after]))
    return found
