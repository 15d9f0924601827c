"""Errors of collectives.

ScheduleError (ValueError)          the algorithm cannot be laid out for these ranks
CollectiveInputError (ValueError)   what the ranks bring does not fit together
CollectiveError                     the collective broke while it ran
├── ScheduleViolationError          a message is not the one that the schedule says comes next
├── CollectiveTimeoutError          a peer is silent
└── PeerLostError                   a peer has ended
"""


class ScheduleError(ValueError):
    """The algorithm cannot be laid out for these ranks."""


class CollectiveInputError(ValueError):
    """The ranks' inputs do not fit together."""


class CollectiveError(RuntimeError):
    """The collective broke while it ran; its result is invalid."""


class ScheduleViolationError(CollectiveError):
    """A message is not the one that the schedule says comes next."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        """The field that was violated: `step`, `phase`, `round`, `chunk`, `source`, `segment`,
        `length`, `checksum`, `missing` (it never came) or `unexpected` (no rank waits for it)."""


class CollectiveTimeoutError(CollectiveError):
    """A peer is silent."""


class PeerLostError(CollectiveError):
    """A peer has ended, on its own or since it lost one of its own peers."""
