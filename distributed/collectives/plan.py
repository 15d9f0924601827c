"""A rank's part of a schedule on tensors of one size, worked out ahead: a flat list of actions.

What a collective needs of Python is then one pass over this list: on small tensors that is what its
time is made of. Messages travel in pieces: while one is added, the next one is on its way.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import zip_longest

from trainhall.distributed.collectives.schedule import Receive, Round, Send, overlap

SCRATCH = 4
"""Buffers for pieces that are added: two for a round, and two for the next one, which may begin
before it has ended."""


class Action(Enum):
    BEGIN = auto()
    """Begin to send or to receive a piece."""
    START = auto()
    """Let go what was begun, as one: for transports that take messages in lockstep."""
    WAIT = auto()
    """Wait until a piece is sent, or has arrived."""
    ADD = auto()
    """Wait for a piece, and add it."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of a message, as the transport takes it at once."""

    round: Round
    peer: int
    chunks: range
    sends: bool
    segment: int
    """Index of the segment of the message, from 0."""
    start: int
    """The piece's slice of the tensor, in elements."""
    stop: int
    first: int
    """Bytes before the message."""
    last: int
    """Bytes up to the end of the message."""
    scratch: int | None = None
    """The buffer into which it is received, where it is added."""

    @property
    def place(self) -> tuple[int, int]:
        return self.start, self.stop

    def overlaps(self, other: "Piece") -> bool:
        return max(self.start, other.start) < min(self.stop, other.stop)


def plan(
    rounds: Iterable[Round], cuts: list[int], *, most_elements: int, lockstep: bool
) -> list[tuple[Action, Piece]]:
    """Return a rank's moves, in order, each with its piece.

    Args:
        rounds: of the rank.
        cuts: where chunks begin, and the end, in elements.
        most_elements: of a piece.
        lockstep: see `Transport`.
    """
    layout = _Layout(cuts, most_elements)
    if lockstep:
        layout.in_lockstep(rounds)
    else:
        layout.ahead(iter(rounds))
    return layout.actions


@dataclass
class _Layout:
    cuts: list[int]
    most_elements: int
    actions: list[tuple[Action, Piece]] = field(default_factory=list)
    unsent: list[Piece] = field(default_factory=list)
    """Begun, and not yet waited for."""
    additions: int = 0
    """Messages so far that are added."""

    def in_lockstep(self, rounds: Iterable[Round]) -> None:
        """Send pieces of one number at once; add one while the next are on their way."""
        for r in rounds:
            sends, receives = self._sends(r), self._receives(r)
            arriving: list[Piece] = []
            for send, receive in zip_longest(sends, receives):
                together = [piece for piece in (send, receive) if piece]
                self._do(Action.BEGIN, together)
                self._do(Action.START, together[-1:])
                if send:
                    self.unsent.append(send)
                self._finish(arriving)
                arriving = [receive] if receive else []
            self._finish(arriving)
            self._settle(self.unsent)

    def ahead(self, rounds: Iterator[Round]) -> None:
        """Receive early and wait for sends late.

        Gloo sends nothing before the other side is ready to receive. So a rank is ready for a round
        before it sends in it and, where buffers allow it, already in the round before. A wait that
        finds its message sent saves a change of threads. So a send is waited for only before its
        place is written to, or a round later.
        """
        r = next(rounds, None)
        incoming = self._begin_receiving(r)
        while r:
            before = self.unsent
            outgoing = self._sends(r)
            self._do(Action.BEGIN, outgoing)
            self.unsent = before + outgoing
            after = next(rounds, None)
            early = after is not None and self._may_receive_early(after, r, incoming)
            ahead = self._begin_receiving(after) if early else None
            for place, piece in enumerate(incoming, start=2):
                self._finish([piece])
                if piece.scratch is not None:
                    self._do(Action.BEGIN, incoming[place : place + 1])  # its buffer is free again
            self._settle([sent for sent in before if sent in self.unsent])
            r, incoming = after, self._begin_receiving(after) if ahead is None else ahead
        self._settle(self.unsent)

    def _begin_receiving(self, r: Round | None) -> list[Piece]:
        if r is None or r.receive is None:
            return []
        incoming = self._receives(r)
        if r.receive.add:
            self._do(Action.BEGIN, incoming[:2])
        else:
            self._settle(self._in_the_way(incoming))
            self._do(Action.BEGIN, incoming)
        return incoming

    def _may_receive_early(self, after: Round, r: Round, incoming: list[Piece]) -> bool:
        """Return whether messages of `after` may arrive while round `r` is in progress."""
        if after.receive is None or (r.receive and r.receive.add and len(incoming) > 2):
            return False  # it would take the place of pieces of this round that are yet to be begun
        if after.receive.add:
            return True  # into a buffer
        if r.receive and overlap(after.receive.chunks, r.receive.chunks):
            return False
        return not self._in_the_way(self._receives(after))

    def _in_the_way(self, incoming: list[Piece]) -> list[Piece]:
        """Return the sends that still read what others would be received into. A peer that
        sends there in a later round has received what was sent to it before."""
        return [
            sent
            for sent in self.unsent
            if any(piece.overlaps(sent) and piece.peer != sent.peer for piece in incoming)
        ]

    def _settle(self, sent: list[Piece]) -> None:
        self._do(Action.WAIT, sent)
        self.unsent = [piece for piece in self.unsent if piece not in sent]

    def _sends(self, r: Round) -> list[Piece]:
        return self._cut(r, r.send) if r.send else []

    def _receives(self, r: Round) -> list[Piece]:
        return self._cut(r, r.receive) if r.receive else []

    def _cut(self, r: Round, message: Send | Receive) -> list[Piece]:
        """Cut a message into its pieces."""
        first, last = self.cuts[message.chunks.start], self.cuts[message.chunks.stop]
        adds = isinstance(message, Receive) and message.add
        self.additions += adds
        return [
            Piece(
                round=r,
                peer=message.peer,
                chunks=message.chunks,
                sends=isinstance(message, Send),
                segment=segment,
                start=start,
                stop=min(start + self.most_elements, last),
                first=first,
                last=last,
                scratch=2 * (self.additions % 2) + segment % 2 if adds else None,
            )
            for segment, start in enumerate(range(first, last, self.most_elements))
        ]

    def _finish(self, incoming: Iterable[Piece]) -> None:
        for piece in incoming:
            if piece.scratch is None:
                self._do(Action.WAIT, [piece])
            else:
                self._settle([sent for sent in self.unsent if piece.overlaps(sent)])
                self._do(Action.ADD, [piece])

    def _do(self, action: Action, pieces: Iterable[Piece]) -> None:
        self.actions.extend((action, piece) for piece in pieces)
