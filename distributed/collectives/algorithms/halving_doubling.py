"""Recursive halving and doubling: as few bytes as a ring in as few rounds as a tree.

Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), section 4.5, after Rabenseifner,
"Optimization of collective reduction operations", ICCS 2004.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainhall.distributed.collectives.schedule import (
    Leg,
    Phase,
    Receive,
    Round,
    Schedule,
    Send,
    placed,
    placed_legs,
    to_pairs,
)


@dataclass(frozen=True)
class HalvingDoubling(Schedule):
    """Pairs of ranks exchange halves, then halves of the half they keep, and so on; the all-gather
    goes the same way back.

    The first exchange, of the most bytes, is between neighbours. With n = 2ᵏ each rank sends
    2·(n−1)/n of the tensor, in 2·log₂ n rounds: 2·log₂ n·α + 2·(n−1)/n·m·β.

    Otherwise, with p the largest power of two below n, each of the first n−p even ranks hands its
    tensor to the next rank, stands aside, and gets the result at the end, as MPICH does it:
    2·(log₂ p + 1)·α + 2·((p−1)/p + 1)·m·β.
    """

    algorithm = "halving_doubling"

    @property
    def chunks(self) -> int:
        """Largest power of two that is not above the world size."""
        return 1 << (self.world_size.bit_length() - 1)

    @property
    def _num_folded(self) -> int:
        return self.world_size - self.chunks

    @property
    def _members(self) -> list[int]:
        """Ranks that exchange halves."""
        num_folded = self._num_folded
        return [2 * i + 1 for i in range(num_folded)] + list(range(2 * num_folded, self.world_size))

    def rounds(self, rank: int) -> Iterator[Round]:
        folds, all_chunks = self._num_folded > 0, range(self.chunks)
        last = folds + 2 * (self.chunks.bit_length() - 1)
        if rank >= 2 * self._num_folded:
            yield from self._exchanges(rank, folds)
        elif rank % 2 == 0:
            yield Round(0, Phase.REDUCE, send=Send(rank + 1, all_chunks))
            receive = Receive(rank + 1, all_chunks, add=False)
            yield Round(last, Phase.BROADCAST, receive=receive)
        else:
            receive = Receive(rank - 1, all_chunks, add=True)
            yield Round(0, Phase.REDUCE, receive=receive)
            yield from self._exchanges(rank, folds)
            yield Round(last, Phase.BROADCAST, send=Send(rank - 1, all_chunks))

    def _exchanges(self, rank: int, first: int) -> Iterator[Round]:
        members = self._members
        index = rank // 2 if rank < 2 * self._num_folded else rank - self._num_folded
        return placed(_power_of_two(index, self.chunks), members=members, first=first)

    def legs(self) -> Iterator[Leg]:
        if self._num_folded:
            even = 2 * np.arange(self._num_folded)
            fold = Leg(1, Fraction(1), to_pairs(even, even + 1))
            yield from (fold, fold.backwards())
        yield from placed_legs(_power_of_two_legs(self.chunks), self._members)


def _power_of_two(rank: int, n: int) -> Iterator[Round]:
    """Yield the exchanges among n = 2ᵏ ranks, in 2k rounds."""
    levels = n.bit_length() - 1
    mine, halves = range(n), []
    for number in range(levels):
        peer = rank ^ (1 << number)
        middle = (mine.start + mine.stop) // 2
        low, high = range(mine.start, middle), range(middle, mine.stop)
        mine, other = (low, high) if rank < peer else (high, low)
        halves.append((peer, mine, other))
        yield Round(number, Phase.REDUCE_SCATTER, Send(peer, other), Receive(peer, mine, add=True))
    for number, (peer, mine, other) in enumerate(reversed(halves), start=levels):
        yield Round(number, Phase.ALL_GATHER, Send(peer, mine), Receive(peer, other, add=False))


def _power_of_two_legs(n: int) -> Iterator[Leg]:
    """Yield twice a round of n/2, n/4 … 1 chunks, at a distance of 1, 2 … n/2 ranks."""
    for number in range(n.bit_length() - 1):
        ranks = np.arange(n)
        yield Leg(2, Fraction(1, 2 << number), to_pairs(ranks, ranks ^ (1 << number)))
