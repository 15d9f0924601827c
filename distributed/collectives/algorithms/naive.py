"""All to one, which adds and sends the sum to all: what everybody writes first."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from trainhall.distributed.collectives.schedule import (
    Leg,
    Phase,
    Receive,
    Round,
    Schedule,
    Send,
    to_pairs,
)

WHOLE = range(1)


@dataclass(frozen=True)
class Naive(Schedule):
    """Rank 0 takes every other rank's tensor, one after the other, and sends the sum back.

    Rank 0 sends n−1 tensors and every other rank one: 2(n−1)·(α + m·β). Kept to compare with, and
    for reading: on two ranks it is the tree.
    """

    algorithm = "naive"

    def rounds(self, rank: int) -> Iterator[Round]:
        n = self.world_size
        if rank == 0:
            for peer in range(1, n):
                yield Round(peer - 1, Phase.REDUCE, receive=Receive(peer, WHOLE, add=True))
            for peer in range(1, n):
                yield Round(n + peer - 2, Phase.BROADCAST, send=Send(peer, WHOLE))
        else:
            yield Round(rank - 1, Phase.REDUCE, send=Send(0, WHOLE))
            yield Round(n + rank - 2, Phase.BROADCAST, receive=Receive(0, WHOLE, add=False))

    def legs(self) -> Iterator[Leg]:
        for peer in range(1, self.world_size):
            push = Leg(1, Fraction(1), to_pairs([peer], 0))
            yield from (push, push.backwards())
