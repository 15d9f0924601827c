"""Errors of the cluster's services.

    ClusterError
    ├── NotFoundError           no such job, node, checkpoint or file
    │   └── NotHeldError        a node asks for what is another's
    ├── WrongStateError         the thing exists, but not in a state that allows this
    ├── ConflictError           it contradicts what already holds, or another change came first
    ├── InvalidCursorError      a page cursor that was not handed out here
    ├── InvalidValueError       a value outside what is allowed; names the field
    ├── NotAllowedError         a missing, unknown, used or expired token
    ├── ForbiddenError          the caller is known, and lacks the right
    ├── NodeRemovedError        the node that held the credential was removed
    ├── RevokedError            the attempt was fenced off; it may change nothing any more
    ├── TooLargeError           an upload beyond its limit
    ├── TooManyError            more of them than one user may have
    ├── StorageFullError        the coordinator's data folder is full
    ├── DamagedError            bytes whose size or hash is not what was promised
    └── ProtocolMismatchError   agent and coordinator speak different versions

The message of each is one sentence for people that says what to do.
"""

import contextlib
import errno
from collections.abc import Iterator


class ClusterError(Exception):
    """Base of all errors that a caller of the cluster's services caused or can act on."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)


class NotFoundError(ClusterError):
    """No such thing exists."""

    def __init__(self, kind: str, identity: str, *, hidden_in: str | None = None) -> None:
        self.kind = kind
        self.identity = identity
        self.hidden_in = hidden_in
        """Project of one that the caller may not see."""
        super().__init__(f"there is no {kind} {identity!r}")


class NotHeldError(NotFoundError):
    """A node's credential speaks for no such part of a job."""


class WrongStateError(ClusterError):
    """The present state does not allow this."""

    def __init__(self, message: str, state: str) -> None:
        self.state = state
        super().__init__(message)


class ConflictError(ClusterError):
    """The request contradicts something that already holds."""


class InvalidCursorError(ClusterError):
    """The cursor was not handed out by this list; leave it out to begin at the first page."""


class InvalidValueError(ClusterError):
    """A value is outside what is allowed."""

    def __init__(
        self, field: str, value: object, message: str, *, position: int | None = None
    ) -> None:
        self.field = field
        self.value = value
        self.position = position
        """Index of the wrong character in a text, from 0."""
        super().__init__(f"{field}: {message}")


class NotAllowedError(ClusterError):
    """The token is unknown, used or expired."""


class ForbiddenError(ClusterError):
    """The caller lacks the right; says which role has it and who can give that."""

    def __init__(self, message: str | None = None, *, project: str | None = None) -> None:
        self.project = project
        """In which the right is lacking."""
        super().__init__(message)


class NodeRemovedError(ClusterError):
    """The node was removed, for good: its agent ends, and what runs there with it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"node {name} was removed; to bring it back, add a node with `trainhall nodes add` and "
            "start the agent with its --token"
        )


class RevokedError(ClusterError):
    """The attempt was replaced, or its ranks regrouped after this `generation`; it may change
    nothing any more."""

    def __init__(self, which: str, generation: int | None = None) -> None:
        super().__init__(
            f"{which} was superseded; its changes are refused"
            if generation is None
            else f"the ranks of {which} regrouped after generation {generation} and resumed from "
            "their own state"
        )


class TooLargeError(ClusterError):
    """The upload is larger than the limit."""

    def __init__(self, limit: int, message: str | None = None) -> None:
        self.limit = limit
        super().__init__(message or f"the upload is larger than the limit of {limit} bytes")


class TooManyError(ClusterError):
    """There are as many as one user may have; try again later."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        self.retry_seconds = retry_seconds
        super().__init__(message)


class StorageFullError(ClusterError):
    """The coordinator's data folder is full."""


@contextlib.contextmanager
def explain_full_disk(remedy: str) -> Iterator[None]:
    """Say it in a sentence where the disk of the data folder is full.

    Raises:
        StorageFullError: it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFullError(
            f"the disk with the coordinator's data folder is full; {remedy}"
        ) from None


class DamagedError(ClusterError):
    """The bytes are not what was promised; send them again."""


class ProtocolMismatchError(ClusterError):
    """Agent and coordinator speak different versions of the protocol."""

    def __init__(self, theirs: int, ours: int) -> None:
        older = "agent" if theirs < ours else "coordinator"
        super().__init__(
            f"the agent speaks protocol version {theirs}, the coordinator {ours}: "
            f"upgrade the {older}"
        )
