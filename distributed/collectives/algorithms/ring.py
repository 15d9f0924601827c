"""The ring: each rank sends to the next one only, and every link carries the same bytes.

Sources: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
J. Parallel Distrib. Comput. 69 (2009); Thakur, Rabenseifner & Gropp, "Optimization of collective
communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), section 4.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import (
    Collective,
    Leg,
    Phase,
    Receive,
    Round,
    Schedule,
    Send,
    one,
    placed,
    to_pairs,
)


@dataclass(frozen=True)
class _OnePass(Schedule):
    """Chunks travel once around.

    Each rank sends (n−1)/n of the tensor, in n−1 rounds: (n−1)·α + (n−1)/n·m·β.
    """

    algorithm = "ring"

    @property
    def chunks(self) -> int:
        return self.world_size

    def legs(self) -> Iterator[Leg]:
        yield from _around(self.world_size, times=self.world_size - 1)

    def _pass(self, rank: int, phase: Phase, first: int, *, add: bool) -> Iterator[Round]:
        """Pass chunks round the ring; the rank sends chunk `first` first."""
        n = self.world_size
        for number in range(n - 1):
            sent = first - number
            yield Round(
                number,
                phase,
                Send((rank + 1) % n, one(sent % n)),
                Receive((rank - 1) % n, one((sent - 1) % n), add=add),
            )


class RingReduceScatter(_OnePass):
    """Partial sums travel once around, and each ends on the rank of its number."""

    collective = Collective.REDUCE_SCATTER

    def rounds(self, rank: int) -> Iterator[Round]:
        return self._pass(rank, Phase.REDUCE_SCATTER, rank - 1, add=True)


class RingAllGather(_OnePass):
    """Finished chunks travel once around."""

    collective = Collective.ALL_GATHER

    def rounds(self, rank: int) -> Iterator[Round]:
        return self._pass(rank, Phase.ALL_GATHER, rank, add=False)


@dataclass(frozen=True)
class Ring(Schedule):
    """A reduce-scatter, then an all-gather.

    Each rank sends 2·(n−1)/n of the tensor, which no all-reduce can undercut (Patarasuk & Yuan),
    in 2·(n−1) rounds: 2(n−1)·α + 2·(n−1)/n·m·β. The best for large tensors; its latency grows with
    the number of ranks.
    """

    algorithm = "ring"

    @property
    def chunks(self) -> int:
        return self.world_size

    def rounds(self, rank: int) -> Iterator[Round]:
        n = self.world_size
        yield from RingReduceScatter(n).rounds(rank)
        yield from placed(RingAllGather(n).rounds(rank), members=range(n), first=n - 1)

    def legs(self) -> Iterator[Leg]:
        yield from _around(self.world_size, times=2 * (self.world_size - 1))


@dataclass(frozen=True)
class RingOfTwo(Schedule):
    """Both passes of a ring at once: two ranks exchange the whole tensor, and both add.

    They are each other's next one, so that this takes as many bytes as the two passes, in one round
    instead of two: α + m·β. Each rank adds all of it, where in a ring each adds a half.
    """

    algorithm = "ring"

    world_size: int = 2

    def __post_init__(self) -> None:
        if self.world_size != 2:
            raise ScheduleError(f"world_size is {self.world_size}; a ring of two has 2 ranks")

    def rounds(self, rank: int) -> Iterator[Round]:
        yield Round(
            0, Phase.ALL_REDUCE, Send(1 - rank, one(0)), Receive(1 - rank, one(0), add=True)
        )

    def legs(self) -> Iterator[Leg]:
        yield Leg(1, Fraction(1), to_pairs([0, 1], [1, 0]))


def _around(n: int, *, times: int) -> Iterator[Leg]:
    if n > 1:
        ranks = np.arange(n)
        yield Leg(times, Fraction(1, n), to_pairs(ranks, (ranks + 1) % n))
