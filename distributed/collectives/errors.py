"""What goes wrong with collectives.

BadSchedule (ValueError)    the algorithm cannot be laid out for these ranks
BadInput (ValueError)       what the ranks bring does not fit together
CollectiveError             the collective broke while it ran
├── Violation               a message is not the one that the schedule says comes next
├── TimedOut                a peer is silent
└── PeerLost                a peer has ended
"""


class BadSchedule(ValueError):
    """The algorithm cannot be laid out for these ranks."""


class BadInput(ValueError):
    """What the ranks bring does not fit together."""


class CollectiveError(RuntimeError):
    """The collective broke while it ran; nobody may use its result."""


class Violation(CollectiveError):
    """A message is not the one that the schedule says comes next."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        """What was violated: `step`, `phase`, `round`, `chunk`, `source`, `segment`, `length`,
        `checksum`, `missing` (it never came) or `unexpected` (nobody waits for it)."""


class TimedOut(CollectiveError):
    """A peer is silent."""


class PeerLost(CollectiveError):
    """A peer has ended, by itself or since it lost one of its own peers."""
