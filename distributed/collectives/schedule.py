"""A collective algorithm as data: for each rank, an ordered list of rounds.

In a round a rank sends at most one message and receives at most one, both at once. Rounds are
numbered over all ranks: what is sent in round 7 is received in round 7. A rank's list leaves out
the rounds in which it is idle. Nothing waits for a round to end everywhere; a rank continues as
soon as it has received the data of its own round.

The tensor is cut into as many chunks as the algorithm wants, numbered from 0, and a message is a
run of neighbouring chunks. Where the cuts lie is open: chunks may differ in size or be empty, and
an empty message is not sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trainhall.distributed.collectives.errors import ScheduleError


class Collective(StrEnum):
    """The result on the ranks. Every rank brings a whole tensor of one size."""

    ALL_REDUCE = "all-reduce"
    """Everywhere the sum."""
    REDUCE_SCATTER = "reduce-scatter"
    """On rank r chunk r of the sum."""
    ALL_GATHER = "all-gather"
    """Everywhere chunk r of rank r, for all r."""


class Phase(StrEnum):
    """The phase that a round belongs to."""

    REDUCE = "reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"
    ALL_REDUCE = "all-reduce"
    """Messages of whole tensors, at once."""


@dataclass(frozen=True, slots=True)
class Send:
    peer: int
    chunks: range


@dataclass(frozen=True, slots=True)
class Receive:
    peer: int
    chunks: range
    add: bool
    """Add to what is there; otherwise replace it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One rank's part in one round. It sends what it has when the round begins: of the chunks
    that it sends none is replaced in the same round, and what is added to one waits until it is
    sent. So a transport may send from the tensor itself, without a copy."""

    number: int
    phase: Phase
    send: Send | None = None
    receive: Receive | None = None

    def __post_init__(self) -> None:
        send, receive = self.send, self.receive
        if send and receive and not receive.add and overlap(send.chunks, receive.chunks):
            raise ScheduleError(
                f"round {self.number} sends {named(send.chunks)} and replaces "
                f"{named(receive.chunks)}: they share a chunk"
            )


Pairs = npt.NDArray[np.int64]
"""Sources and destinations of messages: [messages, 2]."""


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """Rounds of one kind, as the formula of an algorithm counts them."""

    times: int
    share: Fraction
    """The share of the tensor's bytes in each message."""
    pairs: Pairs
    """Sender and receiver pairs of one such round."""

    def backwards(self) -> "Leg":
        return replace(self, pairs=self.pairs[:, ::-1])


@dataclass(frozen=True)
class Schedule(ABC):
    """One algorithm, laid out for `world_size` ranks.

    Raises:
        ScheduleError: there is no such layout.
    """

    algorithm: ClassVar[str]
    collective: ClassVar[Collective] = Collective.ALL_REDUCE

    world_size: int

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ScheduleError(
                f"world_size is {self.world_size}; a collective has at least 1 rank"
            )

    @property
    def chunks(self) -> int:
        """Into how many chunks the tensor is cut."""
        return 1

    def result(self, rank: int) -> range:
        """Return the chunks that `rank` has in the end; the others hold anything."""
        if self.collective is Collective.REDUCE_SCATTER:
            return range(rank, rank + 1)
        return range(self.chunks)

    @abstractmethod
    def rounds(self, rank: int) -> Iterator[Round]:
        """Yield the moves of `rank`, in order. Each rank's list is made separately and lazily:
        thousands of ranks together hold millions of rounds."""

    @abstractmethod
    def legs(self) -> Iterator[Leg]:
        """Return the formula: rounds of equal kind, counted. `cost` adds up their times."""

    def __str__(self) -> str:
        return f"{self.algorithm} {self.collective}, {self.world_size} ranks, {self.chunks} chunks"


def placed(rounds: Iterable[Round], *, members: Sequence[int], first: int) -> Iterator[Round]:
    """Place a smaller world's rounds in a larger one: its rank i is `members[i]`, its round 0 round
    `first`."""
    for r in rounds:
        send, receive = r.send, r.receive
        yield Round(
            first + r.number,
            r.phase,
            send and Send(members[send.peer], send.chunks),
            receive and Receive(members[receive.peer], receive.chunks, receive.add),
        )


def placed_legs(legs: Iterable[Leg], members: Sequence[int]) -> Iterator[Leg]:
    """Place a smaller world's legs in a larger one: its rank i is `members[i]`."""
    world = np.asarray(members, dtype=np.int64)
    for leg in legs:
        yield replace(leg, pairs=world[leg.pairs])


def to_pairs(sources: npt.ArrayLike, destinations: npt.ArrayLike) -> Pairs:
    """Broadcast a single number on one side to every message."""
    both = np.broadcast_arrays(np.asarray(sources), np.asarray(destinations))
    return np.stack(both, axis=-1).astype(np.int64)


def even_cuts(elements: int, chunks: int) -> list[int]:
    """Return the bounds of chunks: chunk c is `[cuts[c], cuts[c + 1])`, sizes differ by 1."""
    return [c * elements // chunks for c in range(chunks + 1)]


def overlap(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)


def one(chunk: int) -> range:
    """Return a message of a single chunk."""
    return range(chunk, chunk + 1)


def named(chunks: range) -> str:
    """Format `chunk 3` or `chunks 2-5`."""
    if len(chunks) == 1:
        return f"chunk {chunks.start}"
    return f"chunks {chunks.start}-{chunks.stop - 1}"
