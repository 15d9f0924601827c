"""Measures the links between ranks: α and β of each class, measured in a fraction of a second.

A pair of ranks runs a ring of two between them, on some sizes. That takes 2α + m·β (`Ring`), and
has in it whatever else an exchange costs here: the processors' work, the transport's, and ours. So
fitted links predict what this program takes, not what the wire could. A ring sends both ways at
once; for algorithms that do not, what a link carries one way can be measured too.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from trainhall.distributed.collectives.algorithms.naive import Naive
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.cost import Link, LinkClass
from trainhall.distributed.collectives.schedule import Leg, Round, Schedule, placed, placed_legs

SIZES = (4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
"""In bytes; those after the second only where they are quick."""
REPEATS = (15, 3)
"""Repetitions of the first size, and of the others."""
LARGE = 1 << 20
"""Smaller ones hide in the buffers of the kernel and of the network, in part."""
SECONDS = 0.5
"""For each class of links."""

EXCHANGE, THERE_AND_BACK = Ring(2), Naive(2)
"""The mode of a pair: it sends and receives at once, or one after the other."""

Hosts = Sequence[Sequence[int]]


class Exchanges(Protocol):
    """The exchanges of pairs of ranks that are timed."""

    @property
    def sizes(self) -> Sequence[int]:
        """Sizes in bytes, rising."""

    @property
    def world_size(self) -> int: ...

    def seconds(self, pairs: "Pairs", size: int, number: int) -> list[float]:
        """Let pairs exchange `size` bytes so often, one after the other; how long each took here.

        All ranks call it; those of no pair do nothing.

        Raises:
            CollectiveError, RuntimeError: a peer is gone or silent.
        """

    def slowest(self, seconds: float) -> float:
        """Return the largest value of any rank, on all of them."""


class ByRings:
    """Exchanges by our own rings, between what the communicator's transport takes."""

    sizes = SIZES

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    @property
    def world_size(self) -> int:
        return self._communicator.world_size

    def seconds(self, pairs: "Pairs", size: int, number: int) -> list[float]:
        tensor = self._communicator.wrap(np.zeros(size // 4, np.float32))
        times = []
        for _ in range(number):
            begun = time.perf_counter()
            self._communicator.run(pairs, tensor)
            times.append(time.perf_counter() - begun)
        return times

    def slowest(self, seconds: float) -> float:
        return float(self._communicator.share(np.array([seconds])).max())


def measure_links(
    exchanges: Exchanges, hosts: Hosts, *, seconds: float = SECONDS
) -> dict[LinkClass, Link]:
    """Measure the links within hosts and between them; a collective: all ranks call it and get the
    same. Those of all hosts are measured at once, and the slowest stands for its class.

    Args:
        hosts: the ranks of each host.
        seconds: about how long each class may take.

    Returns:
        A link for each class that there is: `HOST` where a host has two ranks, `RACK` where there
        are two hosts (what lies between them is not known).

    Raises:
        CollectiveError, RuntimeError: as for `Exchanges.seconds`.
    """
    world_size = exchanges.world_size
    return {
        kind: fit(informative(_times(exchanges, Pairs(world_size, pairs), seconds)))
        for kind, pairs in _pairs(hosts).items()
    }


def measure_one_way(
    rings: ByRings, hosts: Hosts, links: Mapping[LinkClass, Link], *, seconds: float = SECONDS
) -> dict[LinkClass, Link]:
    """Add to `links` what they carry while nothing comes the other way; a collective, too.

    A message goes there and one of its size back, in 2α + 2·m·β. α is known; m is the largest size
    of which `measure_links` has time for a ring, so this takes up to twice as long.
    """
    repeats = 1 + REPEATS[1]
    found = {}
    for kind, pairs in _pairs(hosts).items():
        link = links[kind]
        most = link.bandwidth * (seconds / repeats - 2 * link.latency)
        size = max((m for m in SIZES if m <= most), default=SIZES[0])
        schedule = Pairs(rings.world_size, pairs, THERE_AND_BACK)
        _, *times = rings.seconds(schedule, size, repeats)
        moving = rings.slowest(statistics.median(times)) - 2 * link.latency
        # Noise aside nothing is slower for having the link to itself.
        one_way = max(link.bandwidth, 2 * size / moving) if moving > 0 else link.bandwidth
        found[kind] = replace(link, one_way=one_way)
    return found


def _pairs(hosts: Hosts) -> dict[LinkClass, tuple[tuple[int, int], ...]]:
    """Return the pairs that measure each class of links."""
    classes = {
        LinkClass.HOST: tuple((host[0], host[1]) for host in hosts if len(host) > 1),
        LinkClass.RACK: tuple((a[0], b[0]) for a, b in list(pairwise(hosts))[::2]),
    }
    return {kind: pairs for kind, pairs in classes.items() if pairs}


@dataclass(frozen=True)
class Pairs(Schedule):
    """Each pair of ranks adds up alone, and the other ranks do nothing."""

    algorithm = "pairs"

    pairs: tuple[tuple[int, int], ...]
    of_two: Schedule = EXCHANGE
    """One exchange of a pair."""

    @property
    def chunks(self) -> int:
        return self.of_two.chunks

    def peer(self, rank: int) -> int | None:
        """Return the rank that it exchanges with; None: it has no pair."""
        return next((a + b - rank for a, b in self.pairs if rank in (a, b)), None)

    def rounds(self, rank: int) -> Iterator[Round]:
        for pair in self.pairs:
            if rank in pair:
                yield from placed(self.of_two.rounds(pair.index(rank)), members=pair, first=0)

    def legs(self) -> Iterator[Leg]:
        for pair in self.pairs:
            yield from placed_legs(self.of_two.legs(), pair)


def _times(exchanges: Exchanges, pairs: Pairs, seconds: float) -> list[tuple[int, float]]:
    """Measure sizes in bytes and the seconds of an exchange, the same on all ranks."""
    found: list[tuple[int, float]] = []
    left = seconds
    for size in exchanges.sizes:
        repeats = REPEATS[bool(found)]
        if len(found) > 1 and (1 + repeats) * found[-1][1] * size / found[-1][0] > left:
            break
        # The first exchange finds connections and memory cold.
        _, *times = exchanges.seconds(pairs, size, 1 + repeats)
        median = exchanges.slowest(statistics.median(times))
        found.append((size, median))
        left -= (1 + repeats) * median
    return found


def informative(times: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Select the bytes and seconds that determine the latency and the bandwidth: the first, and the
    large ones, at least the last two."""
    large = sum(size >= LARGE for size, _ in times)
    return times[:1] + times[1:][-max(2, large) :]


def fit(times: Sequence[tuple[int, float]]) -> Link:
    """Fit α and β so that 2α + m·β is closest to the seconds t of each m bytes, in the mean square
    of the errors as shares of t.

    Args:
        times: bytes and seconds of at least one exchange.
    """
    sizes, seconds = (np.array(column, dtype=float) for column in zip(*times, strict=True))
    of_latency, of_size = 2 / seconds, sizes / seconds
    both, *_ = np.linalg.lstsq(np.stack([of_latency, of_size], axis=1), np.ones_like(sizes))
    latency, per_byte = map(float, both)
    if latency <= 0 or per_byte <= 0:  # noise; size alone explains the times then
        latency, per_byte = 0.0, float(of_size.sum() / (of_size**2).sum())
    return Link(latency, 1 / per_byte)
