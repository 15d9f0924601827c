"""The transport of messages between the ranks of a collective."""

from typing import Any, Protocol

from trainhall.distributed.collectives.message import Array, Header

Buffer = Any
"""A one-dimensional numpy array or torch tensor, whichever the transport takes."""


class PeerGoneError(Exception):
    """The peer has ended; the text says why, as far as it is known."""


class Line(Protocol):
    """The way of one message, which goes here in every collective that runs the same plan: at most
    one is on its way."""

    def begin(self, step: int, buffer: Buffer) -> None:
        """Begin to send what is in `buffer`, or to receive into it; it is left alone until the wait
        for it returns.

        Args:
            step: which collective, counted by all ranks alike.

        Raises:
            PeerGoneError: the peer is known to have ended.
        """

    def wait(self, seconds: float) -> None:
        """Return when it is done.

        Args:
            seconds: how long at most; perhaps none any more.

        Raises:
            TimeoutError: it is not, after so long.
            PeerGoneError: it never will be.
            ScheduleViolationError: what arrived is not what was expected.
        """


class Transport(Protocol):
    """One rank's end. Messages between two ranks keep their order."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def lockstep(self) -> bool:
        """Return whether two ranks must begin the messages between them in the same order.

        Then those of one round begin at once, at `start`. Otherwise a rank may be ready to
        receive early.
        """

    def sender(self, peer: int, header: Header, elements: int, kind: str) -> Line:
        """Return a line to `peer`.

        Args:
            header: of the message, but for its step.
            kind: the type of its elements.
        """

    def receiver(self, peer: int, header: Header, elements: int, kind: str) -> Line:
        """Return a line from `peer`, for the message that `header` and the others describe."""

    def start(self) -> None:
        """Let go what was begun since the last call; only called in lockstep.

        Raises:
            PeerGoneError: a peer is known to have ended.
        """

    def leave(self, reason: str) -> None:
        """Send nothing any more; peers that wait for this rank are notified, where that is
        possible."""

    def wrap(self, array: Array) -> Buffer:
        """Convert `array` for this transport; in the same memory, where that can be."""

    def unwrap(self, buffer: Buffer) -> Array:
        """Undo `wrap`."""

    def empty_like(self, buffer: Buffer, elements: int) -> Buffer:
        """Return a new buffer of the same type."""
