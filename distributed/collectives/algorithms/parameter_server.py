"""Servers that each own a part of the tensor: ranks push their parts and get the sums back.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; here
the servers are ranks themselves, as with BytePS (Jiang et al., OSDI 2020) on colocated servers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import (
    Leg,
    Phase,
    Receive,
    Round,
    Schedule,
    Send,
    one,
    to_pairs,
)


@dataclass(frozen=True)
class ParameterServer(Schedule):
    """S ranks serve a chunk each, besides their own part in the sum. They lie evenly spaced among
    the ranks, so that hosts share the work.

    In round k rank r turns to rank r+k+1, so that no server hears two ranks at once. A server
    sends (S−1)/S of the tensor as a worker and (n−1)/S as a server, every other rank the whole
    tensor once: 2(n−1)·(α + m/S·β). With S = n each rank sends what it does in a ring.

    Args:
        servers: S, from 1 to `world_size`.
    """

    algorithm = "parameter_server"

    servers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.servers <= self.world_size:
            raise ScheduleError(
                f"servers is {self.servers}; servers are ranks, so there may be 1 to world_size = "
                f"{self.world_size} of them"
            )

    @property
    def chunks(self) -> int:
        return self.servers

    @cached_property
    def _chunk_of(self) -> dict[int, int]:
        """Chunk of each rank that serves."""
        return {c * self.world_size // self.servers: c for c in range(self.servers)}

    def rounds(self, rank: int) -> Iterator[Round]:
        n, chunk_of = self.world_size, self._chunk_of
        own = chunk_of.get(rank)
        for number in range(n - 1):
            after, before = (rank + number + 1) % n, (rank - number - 1) % n
            push = Send(after, one(chunk_of[after])) if after in chunk_of else None
            take = Receive(before, one(own), add=True) if own is not None else None
            if push or take:
                yield Round(number, Phase.REDUCE_SCATTER, push, take)
        for number in range(n - 1):
            after, before = (rank + number + 1) % n, (rank - number - 1) % n
            give = Send(after, one(own)) if own is not None else None
            get = Receive(before, one(chunk_of[before]), add=False) if before in chunk_of else None
            if give or get:
                yield Round(n - 1 + number, Phase.ALL_GATHER, give, get)

    def legs(self) -> Iterator[Leg]:
        n, share, servers = self.world_size, Fraction(1, self.servers), np.array([*self._chunk_of])
        for distance in range(1, n):
            yield Leg(1, share, to_pairs((servers - distance) % n, servers))
            yield Leg(1, share, to_pairs(servers, (servers + distance) % n))
