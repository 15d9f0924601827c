"""Runs schedules over a transport: one rank's part of each collective."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainhall.distributed.collectives.errors import (
    BadSchedule,
    CollectiveError,
    PeerLost,
    TimedOut,
)
from trainhall.distributed.collectives.message import Array, Header, check_alike
from trainhall.distributed.collectives.ring import RingAllGather
from trainhall.distributed.collectives.schedule import (
    Receive,
    Round,
    Schedule,
    Send,
    even_cuts,
    overlap,
)
from trainhall.distributed.collectives.transport import Buffer, PeerGone, Pending, Transport

SEGMENT_BYTES = 1 << 20
"""Small enough to stay in a processor's cache between its arrival and its addition."""
_TENSOR = np.dtype([("elements", "i8"), ("kind", "S24")])
"""What `agree` compares."""


class Communicator:
    """One rank's end of a group. All ranks make the same calls in the same order.

    Messages travel in segments: while one is added, the next one is on its way.

    Args:
        timeout: seconds in which every collective ends, with its result or an error.
        segment_bytes: the largest piece that is sent at once.
    """

    def __init__(
        self, transport: Transport, *, timeout: float, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._transport = transport
        self._timeout = timeout
        self._segment_bytes = segment_bytes
        self._step = 0
        self._broken: CollectiveError | None = None
        self._scratch = _Scratch(transport)
        self._rounds: dict[Schedule, tuple[Round, ...]] = {}
        """Kept, since making them is a third of our part in a small collective's time."""

    @property
    def rank(self) -> int:
        return self._transport.rank

    @property
    def world_size(self) -> int:
        return self._transport.world_size

    def run(self, schedule: Schedule, tensor: Buffer) -> None:
        """Take part in a collective; `tensor` is replaced by what `schedule.result` says.

        Tensors are of one size and type on all ranks (`agree` sees to it).

        Raises:
            BadSchedule: the schedule is for another number of ranks.
            PeerLost: a peer has ended.
            TimedOut: it took longer than the timeout.
            Violation: a wrong message came.
            CollectiveError: an earlier collective broke; the group is of no more use.
        """
        if self._broken:
            raise CollectiveError(f"an earlier collective broke: {self._broken}")
        if schedule.world_size != self._transport.world_size:
            raise BadSchedule(
                f"{schedule} cannot run in a group of {self._transport.world_size} ranks"
            )
        transfer = _Transfer(
            self._transport,
            tensor,
            cuts=even_cuts(len(tensor), schedule.chunks),
            step=self._step,
            segment=self._segment(tensor),
            scratch=self._scratch,
            deadline=_Deadline(self._timeout),
        )
        self._step += 1
        try:
            transfer.run(iter(self._rounds_of(schedule)))
        except CollectiveError as error:
            self._broken = error
            self._transport.leave(str(error.__cause__ or error))
            raise

    def agree(self, tensor: Buffer) -> None:
        """See that every rank brings a tensor of the same size and type; a collective itself.

        Raises:
            BadInput: on every rank, with what each one brings.
            CollectiveError: as for `run`.
        """
        row = np.array((len(tensor), str(tensor.dtype).encode()), _TENSOR)
        rows = self.share(row.reshape(1).view(np.int64)).view(_TENSOR)
        check_alike([(int(row["elements"]), row["kind"].decode()) for row in rows.reshape(-1)])

    def share(self, values: Array) -> Array:
        """Every rank's `values`, by rank: [ranks, elements]; a collective itself.

        Args:
            values: one-dimensional, of one size and type on all ranks.

        Raises:
            CollectiveError: as for `run`.
        """
        table = np.zeros((self.world_size, values.size), values.dtype)
        table[self.rank] = values
        buffer = self.wrap(table.reshape(-1))
        self.run(RingAllGather(self.world_size), buffer)
        return self._transport.unwrap(buffer).reshape(table.shape)

    def wrap(self, array: Array) -> Buffer:
        """A one-dimensional array as `run` takes it here; it may share the array's memory."""
        return self._transport.wrap(array)

    def _rounds_of(self, schedule: Schedule) -> tuple[Round, ...]:
        if schedule not in self._rounds:
            self._rounds[schedule] = tuple(schedule.rounds(self._transport.rank))
        return self._rounds[schedule]

    def _segment(self, tensor: Buffer) -> int:
        elements: int = self._segment_bytes * len(tensor) // max(1, tensor.nbytes)
        return max(1, elements)


class _Scratch:
    """Buffers that are kept: memory that is new costs more than what is received in it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pairs: deque[list[Buffer]] = deque([[], []])

    def two(self, like: Buffer, elements: int) -> list[Buffer]:
        """Two buffers, others than those of the call before: a round may begin before the last one
        has ended."""
        self._pairs.rotate()
        kept = self._pairs[0]
        if not kept or kept[0].dtype != like.dtype or len(kept[0]) < elements:
            self._pairs[0] = [self._transport.empty_like(like, elements) for _ in range(2)]
        return self._pairs[0]


class _Deadline:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._at = time.monotonic() + timeout

    def left(self) -> float:
        return max(0.0, self._at - time.monotonic())


@dataclass(frozen=True)
class _Transfer:
    """One rank's part of one collective."""

    transport: Transport
    tensor: Buffer
    cuts: list[int]
    step: int
    segment: int
    """Elements of a piece."""
    scratch: _Scratch
    deadline: _Deadline

    def run(self, rounds: Iterator[Round]) -> None:
        """Gloo sends nothing before the other side is ready to receive, so a rank is, early: for a
        round before it sends in it, and where nothing stands against it already in the round
        before."""
        r = next(rounds, None)
        incoming = self._begin_receiving(r)
        while r:
            outgoing = self._begin_sending(r, r.send) if r.send else None
            after = next(rounds, None)
            early = after is not None and _may_receive_early(after, r, incoming)
            ahead = self._begin_receiving(after) if early else None
            if incoming:
                incoming.finish()
            if outgoing:
                outgoing.wait_for_all()  # the next round may overwrite what is being sent
            r, incoming = after, ahead or self._begin_receiving(after)

    def _begin_receiving(self, r: Round | None) -> "_Incoming | None":
        return _Incoming(self, r, r.receive) if r and r.receive else None

    def _begin_sending(self, r: Round, send: Send) -> "_Pieces":
        pieces = _Pieces(self, r, send.peer, send.chunks, "send to")
        for number, part in enumerate(pieces.parts):
            header = self.header(r, send.chunks, self.transport.rank, number)
            pieces.add(self.transport.send(send.peer, header, self.tensor[part]))
        return pieces

    def header(self, r: Round, chunks: range, source: int, segment: int) -> Header:
        return Header(self.step, r.phase, r.number, chunks, source, segment)


def _may_receive_early(after: Round, r: Round, incoming: "_Incoming | None") -> bool:
    """Whether what `after` receives may come while round `r` is under way."""
    if after.receive is None or (incoming and not incoming.all_begun):
        return False  # it would take the place of pieces of this round that are yet to be begun
    if after.receive.add:
        return True  # into a buffer
    if r.receive and overlap(after.receive.chunks, r.receive.chunks):
        return False
    # What is still being sent may be overwritten by none but who has received it by then.
    sends = r.send and r.send.peer != after.receive.peer and r.send.chunks
    return not (sends and overlap(after.receive.chunks, sends))


class _Incoming:
    """What a rank receives in one round.

    What replaces numbers is received where it belongs. What is added comes into two buffers: while
    one piece is added, the next one is on its way.
    """

    def __init__(self, transfer: _Transfer, r: Round, receive: Receive) -> None:
        self._transfer = transfer
        self._round = r
        self._receive = receive
        self._pieces = _Pieces(transfer, r, receive.peer, receive.chunks, "get from")
        self._targets = [transfer.tensor[part] for part in self._pieces.parts]
        self._into = self._targets
        if receive.add:
            longest = min(transfer.segment, self._pieces.elements)
            buffers = transfer.scratch.two(transfer.tensor, longest)
            self._into = [
                buffers[number % 2][: len(target)] for number, target in enumerate(self._targets)
            ]
        for number in range(min(2, len(self._targets)) if receive.add else len(self._targets)):
            self._begin(number)

    @property
    def all_begun(self) -> bool:
        return not self._receive.add or len(self._targets) <= 2

    def finish(self) -> None:
        if not self._receive.add:
            self._pieces.wait_for_all()
            return
        for number, target in enumerate(self._targets):
            self._pieces.wait_for_next()
            target += self._into[number]
            if number + 2 < len(self._targets):
                self._begin(number + 2)

    def _begin(self, number: int) -> None:
        transfer, receive = self._transfer, self._receive
        header = transfer.header(self._round, receive.chunks, receive.peer, number)
        into = self._into[number]
        self._pieces.add(transfer.transport.receive(receive.peer, header, into))


class _Pieces:
    """A message on its way in pieces, to or from one peer."""

    def __init__(
        self, transfer: _Transfer, r: Round, peer: int, chunks: range, direction: str
    ) -> None:
        start, stop = transfer.cuts[chunks.start], transfer.cuts[chunks.stop]
        length = transfer.segment
        self.elements = stop - start
        self.parts = [slice(a, min(a + length, stop)) for a in range(start, stop, length)]
        self._transfer = transfer
        self._round = r
        self._peer = peer
        self._direction = direction
        self._pending: deque[Pending] = deque()
        self._left = self.elements

    def add(self, pending: Pending) -> None:
        self._pending.append(pending)

    def wait_for_all(self) -> None:
        while self._pending:
            self.wait_for_next()

    def wait_for_next(self) -> None:
        deadline = self._transfer.deadline
        try:
            self._pending.popleft().wait(deadline.left())
        except TimeoutError:
            raise TimedOut(
                f"rank {self._transfer.transport.rank} gave up after {deadline.timeout:g} s: "
                f"{self._outstanding()}"
            ) from None
        except PeerGone as gone:
            raise PeerLost(f"rank {self._peer} is gone ({gone}): {self._outstanding()}") from gone
        self._left -= min(self._left, self._transfer.segment)

    def _outstanding(self) -> str:
        tensor = self._transfer.tensor
        element_bytes = tensor.nbytes // len(tensor)
        return (
            f"round {self._round.number} ({self._round.phase}) still had "
            f"{self._left * element_bytes:,} of {self.elements * element_bytes:,} bytes to "
            f"{self._direction} rank {self._peer}"
        )
