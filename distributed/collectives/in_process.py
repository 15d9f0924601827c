"""The second executor's simplest transport: every rank is a thread of this process.

For tests and for teaching: the schedule is the one that runs between hosts, with real concurrency,
and every message is checked.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TypeVar

import numpy as np

from trainhall.distributed.collectives.communicator import SEGMENT_BYTES, Communicator
from trainhall.distributed.collectives.message import Array, Header, Message, seal, verify
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.distributed.collectives.transport import PeerGone, Pending

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
    hall = _Hall(world_size)

    def as_rank(rank: int) -> T:
        transport = InProcess(hall, rank)
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


class _Hall:
    """What the ranks of a group share."""

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

    def __init__(self, hall: _Hall, rank: int) -> None:
        self._hall = hall
        self.rank = rank
        self.world_size = hall.world_size

    def send(self, peer: int, header: Header, data: Array) -> Pending:
        message = seal(header, data)
        with self._hall.arrivals[peer]:
            self._hall.wires[self.rank, peer].append(message)
            self._hall.arrivals[peer].notify()
        return _SENT

    def receive(self, peer: int, header: Header, into: Array) -> Pending:
        return _Arrival(self._hall, self.rank, peer, header, into)

    def leave(self, reason: str) -> None:
        self._hall.departures.setdefault(self.rank, reason)
        for arrival in self._hall.arrivals:
            with arrival:
                arrival.notify()

    def wrap(self, array: Array) -> Array:
        return array

    def unwrap(self, buffer: Array) -> Array:
        return buffer

    def empty_like(self, buffer: Array, elements: int) -> Array:
        return np.empty(elements, buffer.dtype)


class _Sent:
    """The message was copied and lies at its destination."""

    def wait(self, seconds: float) -> None:
        pass


_SENT = _Sent()


class _Arrival:
    """The next message from a peer."""

    def __init__(self, hall: _Hall, rank: int, peer: int, header: Header, into: Array) -> None:
        self._hall = hall
        self._rank = rank
        self._peer = peer
        self._header = header
        self._into = into

    def wait(self, seconds: float) -> None:
        wire = self._hall.wires[self._peer, self._rank]
        arrivals, departures = self._hall.arrivals[self._rank], self._hall.departures
        with arrivals:
            if not arrivals.wait_for(lambda: wire or self._peer in departures, seconds):
                raise TimeoutError
            if not wire:
                raise PeerGone(departures[self._peer])
            message = wire.popleft()
        verify(message, self._header, len(self._into))
        self._into[:] = message.payload
