"""The binomial tree: few rounds, and whole tensors in each.

Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), sections 4.2 (broadcast) and 4.4 (reduce).
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
    to_pairs,
)

WHOLE = range(1)


@dataclass(frozen=True)
class Tree(Schedule):
    """A reduction to rank 0, then a broadcast from it.

    Every rank but rank 0 sends the tensor up once, and each sends it down once to each of its
    children, of which rank 0 has the most, ⌈log₂ n⌉: 2⌈log₂ n⌉·(α + m·β). The best for small
    tensors on many ranks.
    """

    algorithm = "tree"

    def rounds(self, rank: int) -> Iterator[Round]:
        n = self.world_size
        yield from reduce_rounds(rank, n, WHOLE)
        yield from placed(broadcast_rounds(rank, n, WHOLE), members=range(n), first=depth(n))

    def legs(self) -> Iterator[Leg]:
        yield from reduce_legs(self.world_size)
        yield from broadcast_legs(self.world_size)


def depth(world_size: int) -> int:
    """Return the rounds from the leaves to the root: ⌈log₂ n⌉."""
    return (world_size - 1).bit_length()


def reduce_rounds(rank: int, world_size: int, chunks: range) -> Iterator[Round]:
    """Sum `chunks` on rank 0, which alone has the whole one, in `depth` rounds."""
    for number in range(depth(world_size)):
        distance = 1 << number
        if rank & distance:
            yield Round(number, Phase.REDUCE, send=Send(rank - distance, chunks))
            return
        if rank + distance < world_size:
            receive = Receive(rank + distance, chunks, add=True)
            yield Round(number, Phase.REDUCE, receive=receive)


def broadcast_rounds(rank: int, world_size: int, chunks: range) -> Iterator[Round]:
    """Send `chunks` of rank 0 to all, as the reversed reduction, in `depth` rounds."""
    levels = depth(world_size)
    for number in range(levels):
        distance = 1 << (levels - 1 - number)
        if rank % (2 * distance) == distance:
            receive = Receive(rank - distance, chunks, add=False)
            yield Round(number, Phase.BROADCAST, receive=receive)
        elif rank % (2 * distance) == 0 and rank + distance < world_size:
            yield Round(number, Phase.BROADCAST, send=Send(rank + distance, chunks))


def reduce_legs(world_size: int) -> Iterator[Leg]:
    """Yield ⌈log₂ n⌉ rounds, the k-th between ranks at a distance of 2ᵏ."""
    for number in range(depth(world_size)):
        distance = 1 << number
        children = np.arange(distance, world_size, 2 * distance)
        yield Leg(1, Fraction(1), to_pairs(children, children - distance))


def broadcast_legs(world_size: int) -> Iterator[Leg]:
    """Yield the legs of the reduction, the other way around."""
    for leg in reduce_legs(world_size):
        yield leg.backwards()
