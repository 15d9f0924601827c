"""Servers that each own a part of the tensor: ranks push their parts and get the sums back.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; here
the servers are ranks themselves, as with BytePS (Jiang et al., OSDI 2020) on colocated servers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainhall.distributed.collectives.errors import BadSchedule
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
    """Ranks 0 … S−1 serve a chunk each, besides their own part in the sum.

    In round k rank r sends to rank r+k+1, so that no server hears two ranks at once. A server
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
            raise BadSchedule(
                f"servers is {self.servers}; servers are ranks, so there may be 1 to world_size = "
                f"{self.world_size} of them"
            )

    @property
    def chunks(self) -> int:
        return self.servers

    def rounds(self, rank: int) -> Iterator[Round]:
        n, serves = self.world_size, rank < self.servers
        for number in range(n - 1):
            after, before = (rank + number + 1) % n, (rank - number - 1) % n
            push = Send(after, one(after)) if after < self.servers else None
            take = Receive(before, one(rank), add=True) if serves else None
            if push or take:
                yield Round(number, Phase.REDUCE_SCATTER, push, take)
        for number in range(n - 1):
            after, before = (rank + number + 1) % n, (rank - number - 1) % n
            give = Send(after, one(rank)) if serves else None
            get = Receive(before, one(before), add=False) if before < self.servers else None
            if give or get:
                yield Round(n - 1 + number, Phase.ALL_GATHER, give, get)

    def legs(self) -> Iterator[Leg]:
        n, share, servers = self.world_size, Fraction(1, self.servers), np.arange(self.servers)
        for distance in range(1, n):
            yield Leg(1, share, to_pairs((servers - distance) % n, servers))
            yield Leg(1, share, to_pairs(servers, (servers + distance) % n))
