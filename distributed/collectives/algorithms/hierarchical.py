"""Two levels: sums within each host first, so that few bytes cross the slow links between hosts.

Source: the layering by host is that of Karonis et al., "Exploiting hierarchy in parallel computer
networks to optimize collective operation performance", IPDPS 2000; the parts are `tree` and `ring`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import zip_longest

import numpy as np

from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.algorithms.tree import (
    broadcast_legs,
    broadcast_rounds,
    depth,
    reduce_legs,
    reduce_rounds,
)
from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import Leg, Round, Schedule, placed, placed_legs


@dataclass(frozen=True)
class Hierarchical(Schedule):
    """A tree to one rank of each host, a ring among these, and trees back.

    With H hosts of at most L ranks: 2⌈log₂ L⌉·(α + m·β) on links within a host, and
    2(H−1)·α + 2·(H−1)/H·m·β on links between hosts. The leader of a host sends 2·(H−1)/H of the
    tensor to other hosts and the tensor itself to each of its ⌈log₂ L⌉ children.

    Args:
        hosts: the ranks of each host; its first one is the leader.
    """

    algorithm = "hierarchical"

    hosts: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        ranks = [rank for host in self.hosts for rank in host]
        if sorted(ranks) != list(range(self.world_size)) or not all(self.hosts):
            sizes = ", ".join(str(len(host)) for host in self.hosts)
            raise ScheduleError(
                f"hosts of {sizes or 'no'} ranks do not match a world of {self.world_size}: each "
                f"of the ranks 0 to {self.world_size - 1} must be on exactly one host"
            )

    @property
    def chunks(self) -> int:
        return len(self.hosts)

    @cached_property
    def _host_of(self) -> dict[int, tuple[int, ...]]:
        return {rank: host for host in self.hosts for rank in host}

    @cached_property
    def _leaders(self) -> tuple[int, ...]:
        return tuple(host[0] for host in self.hosts)

    @cached_property
    def _depth(self) -> int:
        return depth(max(len(host) for host in self.hosts))

    def rounds(self, rank: int) -> Iterator[Round]:
        host, chunks, first = self._host_of[rank], range(self.chunks), self._depth
        index = host.index(rank)
        yield from placed(reduce_rounds(index, len(host), chunks), members=host, first=0)
        if index == 0:
            ring = Ring(len(self.hosts)).rounds(self._leaders.index(rank))
            yield from placed(ring, members=self._leaders, first=first)
        begin = first + 2 * (len(self.hosts) - 1)
        yield from placed(broadcast_rounds(index, len(host), chunks), members=host, first=begin)

    def legs(self) -> Iterator[Leg]:
        for legs in (reduce_legs, broadcast_legs):
            by_host = [placed_legs(legs(len(host)), host) for host in self.hosts]
            for level in zip_longest(*by_host):
                pairs = np.concatenate([leg.pairs for leg in level if leg is not None])
                yield Leg(1, Fraction(1), pairs)
        yield from placed_legs(Ring(len(self.hosts)).legs(), self._leaders)
