"""The executor's simplest transport: every rank is a thread of this process.

The schedule is the one that runs between hosts, with real concurrency, and every message is
checked.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

import numpy as np

from trainhall.distributed.collectives.communicator import SEGMENT_BYTES, Communicator
from trainhall.distributed.collectives.message import Array, Header, Message, seal, verify
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.distributed.collectives.transport import PeerGoneError

T = TypeVar("T")


def run_schedule(
    schedule: Schedule,
    tensors: Sequence[Array],
    *,
    timeout: float = 30.0,
    segment_bytes: int = SEGMENT_BYTES,
) -> list[Array]:
    """Run `schedule` among threads, one per tensor; the tensors given stay as they are.

    Raises:
        ExceptionGroup: with the error of each rank that failed.
    """

    def work(transport: "InProcess") -> Array:
        tensor = tensors[transport.rank].copy()
        communicator = Communicator(transport, timeout=timeout, segment_bytes=segment_bytes)
        communicator.agree(tensor)
        communicator.run(schedule, tensor)
        return tensor

    return run_ranks(schedule.world_size, work)


def run_ranks(world_size: int, work: Callable[["InProcess"], T]) -> list[T]:
    """Run `work` on every rank, each in a thread; what each returned, by rank.

    Raises:
        ExceptionGroup: with the error of each rank that failed.
    """
    group = _SharedGroup(world_size)

    def as_rank(rank: int) -> T:
        transport = InProcess(group, rank)
        try:
            return work(transport)
        except Exception as error:
            transport.leave(f"rank {rank} ended with {type(error).__name__}: {error}")
            raise
        finally:
            transport.leave(f"rank {rank} has finished")

    with ThreadPoolExecutor(world_size) as threads:
        ranks = [threads.submit(as_rank, rank) for rank in range(world_size)]
    errors = [error for rank in ranks if isinstance(error := rank.exception(), Exception)]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {world_size} ranks failed", errors)
    return [rank.result() for rank in ranks]


class _SharedGroup:
    """State that the ranks of a group share."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        ranks = range(world_size)
        self.wires = {pair: deque[Message]() for pair in product(ranks, ranks)}
        """Messages by source and destination."""
        self.arrivals = [threading.Condition() for _ in range(world_size)]
        """By destination: a message has come, or a peer has left."""
        self.departures: dict[int, str] = {}
        """Why each rank that left did so."""


class InProcess:
    """A rank's end of a group of threads; see `Transport`."""

    lockstep = False

    def __init__(self, group: _SharedGroup, rank: int) -> None:
        self._group = group
        self.rank = rank
        self.world_size = group.world_size

    def sender(self, peer: int, header: Header, elements: int, kind: str) -> "_Sender":
        return _Sender(self._group, peer, header)

    def receiver(self, peer: int, header: Header, elements: int, kind: str) -> "_Receiver":
        return _Receiver(self._group, self.rank, header)

    def start(self) -> None:
        """Nothing to do: messages go when they are begun."""

    def leave(self, reason: str) -> None:
        self._group.departures.setdefault(self.rank, reason)
        for arrival in self._group.arrivals:
            with arrival:
                arrival.notify()

    def wrap(self, array: Array) -> Array:
        return array

    def unwrap(self, buffer: Array) -> Array:
        return buffer

    def empty_like(self, buffer: Array, elements: int) -> Array:
        return np.empty(elements, buffer.dtype)


@dataclass
class _Sender:
    group: _SharedGroup
    peer: int
    header: Header

    def begin(self, step: int, data: Array) -> None:
        message = seal(replace(self.header, step=step), data)
        with self.group.arrivals[self.peer]:
            self.group.wires[self.header.source, self.peer].append(message)
            self.group.arrivals[self.peer].notify()

    def wait(self, seconds: float) -> None:
        """Nothing to wait for: the message was copied and lies at its destination."""


class _Receiver:
    """Waits for the next message from a peer, whatever it is, and sees that it is the right one."""

    def __init__(self, group: _SharedGroup, rank: int, header: Header) -> None:
        self._group = group
        self._rank = rank
        self._header = header
        self._step = 0
        self._into: Array = np.empty(0)

    def begin(self, step: int, into: Array) -> None:
        self._step, self._into = step, into

    def wait(self, seconds: float) -> None:
        peer = self._header.source
        wire = self._group.wires[peer, self._rank]
        arrivals, departures = self._group.arrivals[self._rank], self._group.departures
        with arrivals:
            if not arrivals.wait_for(lambda: wire or peer in departures, max(0.0, seconds)):
                raise TimeoutError
            if not wire:
                raise PeerGoneError(departures[peer])
            message = wire.popleft()
        verify(message, replace(self._header, step=self._step), len(self._into))
        self._into[:] = message.payload
