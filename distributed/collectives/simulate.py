"""The first executor: runs a schedule step by step over plain arrays, and checks every message.

Between two ranks messages keep their order; between different pairs any order may happen, and
`choose` decides which one does.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainhall.distributed.collectives.errors import CollectiveInputError, ScheduleViolationError
from trainhall.distributed.collectives.message import (
    Array,
    Header,
    Message,
    check_same_kind,
    seal,
    verify,
)
from trainhall.distributed.collectives.schedule import (
    Receive,
    Round,
    Schedule,
    Send,
    even_cuts,
    named,
)


class Wires:
    """Messages that were sent and not yet received. A test damages messages by overriding
    `send`."""

    def __init__(self) -> None:
        self._queues: defaultdict[tuple[int, int], deque[Message]] = defaultdict(deque)

    def send(self, source: int, destination: int, message: Message) -> None:
        self.deliver(source, destination, message)

    def deliver(self, source: int, destination: int, message: Message) -> None:
        self._queues[source, destination].append(message)

    def holds(self, source: int, destination: int) -> bool:
        return bool(self._queues.get((source, destination)))

    def take(self, source: int, destination: int) -> Message:
        return self._queues[source, destination].popleft()

    def left(self) -> Iterator[tuple[int, Message]]:
        """Yield the messages that were not received, with their destinations."""
        for (_, destination), queue in self._queues.items():
            for message in queue:
                yield destination, message


@dataclass(frozen=True)
class Outcome:
    tensors: list[Array]
    """Each rank's; `Schedule.result` says which chunks of it count."""
    sent_bytes: list[int]
    """By each rank, without headers."""
    messages: int


def simulate(
    schedule: Schedule,
    tensors: Sequence[Array],
    *,
    cuts: Sequence[int] | None = None,
    step: int = 0,
    wires: Wires | None = None,
    choose: Callable[[int], int] = lambda count: count - 1,
) -> Outcome:
    """Run `schedule` on one tensor per rank, which stay as they are.

    Args:
        tensors: one-dimensional, of one size and type.
        cuts: where chunks begin, and the end, as from `even_cuts`; any rising numbers will do.
        choose: picks one of so many ranks that could continue.

    Raises:
        CollectiveInputError: the tensors or cuts do not fit.
        ScheduleViolationError: a message is not the one that the schedule says comes next.
    """
    if len(tensors) != schedule.world_size:
        raise CollectiveInputError(
            f"{schedule} needs a tensor for each rank, and there are {len(tensors)}"
        )
    check_same_kind([(tensor.size, str(tensor.dtype)) for tensor in tensors])
    elements = tensors[0].size
    cuts = even_cuts(elements, schedule.chunks) if cuts is None else cuts
    ends = len(cuts) == schedule.chunks + 1 and (cuts[0], cuts[-1]) == (0, elements)
    if not ends or list(cuts) != sorted(cuts):
        raise CollectiveInputError(
            f"cuts must be {schedule.chunks + 1} rising numbers from 0 to {elements}, not "
            f"{list(cuts)}"
        )
    return _Run(schedule, tensors, cuts, step, wires or Wires()).run(choose)


class _Run:
    def __init__(
        self,
        schedule: Schedule,
        tensors: Sequence[Array],
        cuts: Sequence[int],
        step: int,
        wires: Wires,
    ) -> None:
        self._tensors = [tensor.copy() for tensor in tensors]
        self._cuts = cuts
        self._step = step
        self._wires = wires
        self._todo = [schedule.rounds(rank) for rank in range(schedule.world_size)]
        self._sent_bytes = [0] * schedule.world_size
        self._messages = 0
        self._ready = list(range(schedule.world_size))
        self._waiting: dict[int, tuple[Round, Receive]] = {}
        """Ranks whose message has not come, and what they wait for."""

    def run(self, choose: Callable[[int], int]) -> Outcome:
        while self._ready:
            rank = self._ready.pop(choose(len(self._ready)))
            if rank in self._waiting:
                self._receive(rank, *self._waiting.pop(rank))
                self._ready.append(rank)
            else:
                self._begin_round(rank)
        self._check_all_done()
        return Outcome(self._tensors, self._sent_bytes, self._messages)

    def _begin_round(self, rank: int) -> None:
        r = next(self._todo[rank], None)
        if r is None:
            return
        if r.send and self._span(r.send.chunks):
            self._send(rank, r, r.send)
        if r.receive and self._span(r.receive.chunks):
            self._waiting[rank] = (r, r.receive)
            if not self._wires.holds(r.receive.peer, rank):
                return  # the sender makes it ready again
        self._ready.append(rank)

    def _send(self, rank: int, r: Round, send: Send) -> None:
        data = self._part(rank, send.chunks)
        header = Header(self._step, r.phase, r.number, send.chunks, rank)
        had_any = self._wires.holds(rank, send.peer)
        self._wires.send(rank, send.peer, seal(header, data))
        self._sent_bytes[rank] += data.nbytes
        self._messages += 1
        waiting = self._waiting.get(send.peer)
        waits_for_us = waiting is not None and waiting[1].peer == rank
        if waits_for_us and not had_any and self._wires.holds(rank, send.peer):
            self._ready.append(send.peer)

    def _receive(self, rank: int, r: Round, receive: Receive) -> None:
        message = self._wires.take(receive.peer, rank)
        target = self._part(rank, receive.chunks)
        expected = Header(self._step, r.phase, r.number, receive.chunks, receive.peer)
        verify(message, expected, target.size)
        if receive.add:
            target += message.payload
        else:
            target[:] = message.payload

    def _check_all_done(self) -> None:
        if self._waiting:
            rank = min(self._waiting, key=lambda rank: self._waiting[rank][0].number)
            r, receive = self._waiting[rank]
            raise ScheduleViolationError(
                "missing",
                f"rank {rank} waits for {named(receive.chunks)} of round {r.number} ({r.phase}) "
                f"from rank {receive.peer}, which never arrived",
            )
        for destination, message in self._wires.left():
            h = message.header
            raise ScheduleViolationError(
                "unexpected",
                f"rank {destination} is done, and has another message: {named(h.chunks)} of round "
                f"{h.round} ({h.phase}) from rank {h.source}",
            )

    def _span(self, chunks: range) -> int:
        return self._cuts[chunks.stop] - self._cuts[chunks.start]

    def _part(self, rank: int, chunks: range) -> Array:
        return self._tensors[rank][self._cuts[chunks.start] : self._cuts[chunks.stop]]
