"""Errors of commands: one clear line on stderr and an exit code that scripts can rely on.

CliError                1
├── UsageError               2    the input given to the command is wrong
├── NotAllowedError          3
├── UnreachableError         4    no coordinator answers
├── WrongStateError          5    the request does not fit the job's or the node's state
└── NotFoundError            1
"""

# Exit codes of `wait` and `submit -f`, by the end of the job.
COMPLETED = 0
FAILED = 100
UNFINISHED = 101
MISSING = 102
CANCELLED = 103
FINAL = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED}
"""Exit codes by the final states of a job."""


class CliError(Exception):
    """The command failed."""

    exit_code = 1

    def __init__(self, message: str, details: list[str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or []
        """One line each, shown below the message: the fields that are wrong, and why."""

    def __str__(self) -> str:
        return "\n  ".join([self.message, *self.details])


class UsageError(CliError):
    """The input given to the command is wrong."""

    exit_code = 2


class NotAllowedError(CliError):
    """The coordinator refuses this user or this address."""

    exit_code = 3


class UnreachableError(CliError):
    """No coordinator answers at the URL."""

    exit_code = 4


class WrongStateError(CliError):
    """The request does not fit the present state."""

    exit_code = 5


class NotFoundError(CliError):
    """No such thing exists."""
