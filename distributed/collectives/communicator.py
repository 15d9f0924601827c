"""Runs schedules over a transport: one rank's part of each collective."""

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from trainhall.distributed.collectives.errors import (
    BadSchedule,
    CollectiveError,
    PeerLost,
    TimedOut,
)
from trainhall.distributed.collectives.message import Header, check_alike
from trainhall.distributed.collectives.ring import RingAllGather
from trainhall.distributed.collectives.schedule import (
    Receive,
    Round,
    Schedule,
    Send,
    even_cuts,
)
from trainhall.distributed.collectives.transport import Buffer, PeerGone, Pending, Transport

SEGMENT_BYTES = 1 << 20
"""Small enough to stay in a processor's cache between its arrival and its addition."""
_TYPE_BYTES = 24


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
            deadline=_Deadline(self._timeout),
        )
        self._step += 1
        try:
            for r in schedule.rounds(self._transport.rank):
                transfer.round(r)
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
        ranks, own = self._transport.world_size, self._transport.rank
        table = np.zeros(ranks, dtype=[("elements", "i8"), ("kind", f"S{_TYPE_BYTES}")])
        table[own] = (len(tensor), str(tensor.dtype).encode())
        self.run(RingAllGather(ranks), self._transport.wrap(table.view(np.int64)))
        check_alike([(int(row["elements"]), row["kind"].decode()) for row in table])

    def _segment(self, tensor: Buffer) -> int:
        elements: int = self._segment_bytes * len(tensor) // max(1, tensor.nbytes)
        return max(1, elements)


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
    deadline: _Deadline

    def round(self, r: Round) -> None:
        sending = self._begin_sending(r, r.send) if r.send else None
        if r.receive and r.receive.add:
            self._receive_and_add(r, r.receive)
        elif r.receive:
            self._receive(r, r.receive)
        if sending:
            sending.wait_for_all()  # the next round may overwrite what is being sent

    def _begin_sending(self, r: Round, send: Send) -> "_Pieces":
        pieces = _Pieces(self, r, send.peer, send.chunks, "send to")
        for number, part in enumerate(pieces.parts):
            header = self._header(r, send.chunks, self.transport.rank, number)
            pieces.add(self.transport.send(send.peer, header, self.tensor[part]))
        return pieces

    def _receive(self, r: Round, receive: Receive) -> None:
        pieces = _Pieces(self, r, receive.peer, receive.chunks, "get from")
        for number, part in enumerate(pieces.parts):
            header = self._header(r, receive.chunks, receive.peer, number)
            pieces.add(self.transport.receive(receive.peer, header, self.tensor[part]))
        pieces.wait_for_all()

    def _receive_and_add(self, r: Round, receive: Receive) -> None:
        """Two pieces are on their way at a time, into two buffers; one is added meanwhile."""
        pieces = _Pieces(self, r, receive.peer, receive.chunks, "get from")
        parts = pieces.parts
        length = min(self.segment, pieces.elements)
        buffers = [self.transport.empty_like(self.tensor, length) for _ in parts[:2]]

        def begin(number: int) -> None:
            header = self._header(r, receive.chunks, receive.peer, number)
            into = buffers[number % 2][: _length(parts[number])]
            pieces.add(self.transport.receive(receive.peer, header, into))

        for number in range(len(buffers)):
            begin(number)
        for number, part in enumerate(parts):
            pieces.wait_for_next()
            target = self.tensor[part]
            target += buffers[number % 2][: _length(part)]
            if number + 2 < len(parts):
                begin(number + 2)

    def _header(self, r: Round, chunks: range, source: int, segment: int) -> Header:
        return Header(self.step, r.phase, r.number, chunks, source, segment)


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


def _length(part: slice) -> int:
    return int(part.stop - part.start)
