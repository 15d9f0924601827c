"""Runs schedules over a transport: one rank's part of each collective."""

import time
from typing import NamedTuple

import numpy as np

from trainhall.distributed.collectives.algorithms.ring import RingAllGather
from trainhall.distributed.collectives.errors import (
    CollectiveError,
    CollectiveTimeoutError,
    PeerLostError,
    ScheduleError,
)
from trainhall.distributed.collectives.message import Array, Header, check_same_kind
from trainhall.distributed.collectives.plan import SCRATCH, Action, Piece, plan
from trainhall.distributed.collectives.schedule import Schedule, even_cuts
from trainhall.distributed.collectives.transport import Buffer, Line, PeerGoneError, Transport

SEGMENT_BYTES = 1 << 20
"""Small enough to stay in a processor's cache between its arrival and its addition."""
_MOST_PREPARED = 256
"""Kept at a time; a training job has one for each of its buckets."""
_TENSOR = np.dtype([("elements", "i8"), ("kind", "S24")])
"""The arguments that `agree` compares."""


class Communicator:
    """One rank's end of a group. All ranks make the same calls in the same order.

    Args:
        timeout: seconds in which every collective ends, with its result or an error.
        segment_bytes: the largest piece that is sent at once.

    Attributes:
        sent_bytes: of all collectives so far, by this rank; headers are not counted.
    """

    def __init__(
        self, transport: Transport, *, timeout: float, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._transport = transport
        self._timeout = timeout
        self._segment_bytes = segment_bytes
        self.sent_bytes = 0
        self._step = 0
        self._broken: CollectiveError | None = None
        self._scratch: dict[object, list[Buffer]] = {}
        """By type of elements. Kept, since new memory costs more than what is received in it."""
        self._prepared: dict[tuple[Schedule, int, object], _Prepared] = {}
        """By schedule, size and type of elements."""

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
            ScheduleError: the schedule is for another number of ranks.
            PeerLostError: a peer has ended.
            CollectiveTimeoutError: it took longer than the timeout.
            ScheduleViolationError: a wrong message came.
            CollectiveError: an earlier collective broke; the group cannot be used again.
        """
        if self._broken:
            raise CollectiveError(f"an earlier collective broke: {self._broken}")
        key = (schedule, tensor.shape[0], tensor.dtype)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(schedule, tensor)
            if len(self._prepared) == _MOST_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[key] = prepared
        self._step += 1
        try:
            self._do(prepared, tensor)
        except CollectiveError as error:
            self._broken = error
            self._transport.leave(str(error.__cause__ or error))
            raise
        self.sent_bytes += prepared.sent_bytes

    def agree(self, tensor: Buffer) -> None:
        """See that every rank brings a tensor of the same size and type; a collective itself.

        Raises:
            CollectiveInputError: on every rank, with what each one brings.
            CollectiveError: as for `run`.
        """
        row = np.array((len(tensor), str(tensor.dtype).encode()), _TENSOR)
        rows = self.share(row.reshape(1).view(np.int64)).view(_TENSOR)
        check_same_kind([(int(row["elements"]), row["kind"].decode()) for row in rows.reshape(-1)])

    def share(self, values: Array) -> Array:
        """Gather every rank's `values`, by rank: [ranks, elements]; a collective itself.

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
        """Wrap a one-dimensional array as `run` takes it; it may share the array's memory."""
        return self._transport.wrap(array)

    def _do(self, prepared: "_Prepared", tensor: Buffer) -> None:
        step, ends = self._step, time.monotonic() + self._timeout
        # Most parts are sent and received into, some added to as well, and each view costs time.
        parts = [tensor[place] for place in prepared.places]
        for action, line, part, into, piece in prepared.tasks:
            try:
                if action is Action.BEGIN:
                    line.begin(step, parts[part] if into is None else into)
                elif action is Action.START:
                    self._transport.start()
                else:
                    line.wait(ends - time.monotonic())
            except TimeoutError:
                raise CollectiveTimeoutError(
                    f"rank {self.rank} timed out after {self._timeout:g} s: "
                    f"{_outstanding(piece, tensor)}"
                ) from None
            except PeerGoneError as gone:
                raise PeerLostError(
                    f"rank {piece.peer} is gone ({gone}): {_outstanding(piece, tensor)}"
                ) from gone
            if action is Action.ADD:
                parts[part] += into

    def _prepare(self, schedule: Schedule, tensor: Buffer) -> "_Prepared":
        transport, kind = self._transport, tensor.dtype
        if schedule.world_size != transport.world_size:
            raise ScheduleError(f"{schedule} cannot run in a group of {transport.world_size} ranks")
        most_elements = max(1, self._segment_bytes // tensor.itemsize)
        if kind not in self._scratch:
            self._scratch[kind] = [
                transport.empty_like(tensor, most_elements) for _ in range(SCRATCH)
            ]
        steps = plan(
            schedule.rounds(transport.rank),
            even_cuts(len(tensor), schedule.chunks),
            most_elements=most_elements,
            lockstep=transport.lockstep,
        )
        ways = {piece: self._way(piece, kind) for _, piece in steps}
        numbers = {place: i for i, place in enumerate(dict.fromkeys(p.place for p in ways))}
        tasks = []
        for action, piece in steps:
            line, into = ways[piece]
            tasks.append(_Task(action, line, numbers[piece.place], into, piece))
        sent = sum(piece.stop - piece.start for piece in ways if piece.sends)
        return _Prepared([slice(*place) for place in numbers], tasks, sent * tensor.itemsize)

    def _way(self, piece: Piece, kind: object) -> tuple[Line, Buffer | None]:
        """Return the line of a piece, and the buffer into which it comes."""
        own = self._transport
        r, source = piece.round, own.rank if piece.sends else piece.peer
        header = Header(0, r.phase, r.number, piece.chunks, source, piece.segment)
        elements = piece.stop - piece.start
        line = (own.sender if piece.sends else own.receiver)(
            piece.peer, header, elements, str(kind)
        )
        into = None if piece.scratch is None else self._scratch[kind][piece.scratch][:elements]
        return line, into


class _Task(NamedTuple):
    """An action with all that it needs but the tensor."""

    action: Action
    line: Line
    part: int
    """Index of the tensor's part."""
    into: Buffer | None
    """A view of a scratch buffer, for a piece that is added."""
    piece: Piece


class _Prepared(NamedTuple):
    """A rank's part of a schedule on tensors of one size and type."""

    places: list[slice]
    """The parts of the tensor, each once."""
    tasks: list[_Task]
    sent_bytes: int


def _outstanding(piece: Piece, tensor: Buffer) -> str:
    """Describe the part of a message that had not arrived."""
    r, direction = piece.round, "send to" if piece.sends else "get from"
    left, all_of_it = (piece.last - piece.start), (piece.last - piece.first)
    return (
        f"round {r.number} ({r.phase}) still had {left * tensor.itemsize:,} of "
        f"{all_of_it * tensor.itemsize:,} bytes to {direction} rank {piece.peer}"
    )
