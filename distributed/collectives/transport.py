"""What carries messages between the ranks of a collective."""

from typing import Any, Protocol

from trainhall.distributed.collectives.message import Array, Header

Buffer = Any
"""A one-dimensional numpy array or torch tensor, whichever the transport takes."""


class PeerGone(Exception):
    """The peer has ended; the text says why, as far as it is known."""


class Pending(Protocol):
    def wait(self, seconds: float) -> None:
        """Return when it is done.

        Raises:
            TimeoutError: it is not, after so long.
            PeerGone: it never will be.
            Violation: what arrived is not what was expected.
        """


class Transport(Protocol):
    """One rank's end. Messages between two ranks keep their order."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def send(self, peer: int, header: Header, data: Buffer) -> Pending:
        """Begin to send. `data` stays as it is until the wait for it returns."""

    def receive(self, peer: int, header: Header, into: Buffer) -> Pending:
        """Begin to receive what `header` describes."""

    def leave(self, reason: str) -> None:
        """Send nothing any more; peers that wait for this rank are told, where that can be."""

    def wrap(self, array: Array) -> Buffer:
        """`array` as this transport takes it; in the same memory, where that can be."""

    def unwrap(self, buffer: Buffer) -> Array:
        """The other way around."""

    def empty_like(self, buffer: Buffer, elements: int) -> Buffer:
        """A new buffer of the same type."""
