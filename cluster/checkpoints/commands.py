"""The commands that users give to a checkpoint, and what keeps it from each."""

from enum import StrEnum

from trainhall.cluster.errors import WrongStateError
from trainhall.db.models import Checkpoint


class CheckpointCommand(StrEnum):
    RESTORE = "restore"
    PIN = "pin"
    UNPIN = "unpin"
    DELETE = "delete"


def _refusal(row: Checkpoint, command: CheckpointCommand) -> str | None:
    """Return why a checkpoint refuses a command, as a clause behind its name."""
    match command:
        case CheckpointCommand.RESTORE if row.state != "committed":
            return f"is {row.state}; restore another one"
        case CheckpointCommand.PIN | CheckpointCommand.UNPIN if _is_gone(row):
            return f"is {row.state}; it can no longer be {command}ned"
        case CheckpointCommand.DELETE if row.pinned:
            return "is pinned; unpin it first"
    return None


def check_allowed(row: Checkpoint, command: CheckpointCommand) -> None:
    """Raise WrongStateError if the checkpoint's state does not allow the command."""
    why = _refusal(row, command)
    if why is not None:
        raise WrongStateError(f"checkpoint {row.id} {why}", row.state)


def refused_commands(row: Checkpoint, denied: str | None = None) -> dict[CheckpointCommand, str]:
    """Return the commands that would have no effect, each with the reason as a sentence.

    Args:
        denied: why the reader may give none, as a clause.
    """
    if denied is not None:
        return dict.fromkeys(CheckpointCommand, f"{denied[0].upper()}{denied[1:]}.")
    repeated = {
        CheckpointCommand.PIN: "is already pinned" if row.pinned else None,
        CheckpointCommand.UNPIN: "is not pinned" if not row.pinned else None,
        CheckpointCommand.DELETE: f"is already {row.state}" if _is_gone(row) else None,
    }
    found = {each: _refusal(row, each) or repeated.get(each) for each in CheckpointCommand}
    return {command: f"It {why}." for command, why in found.items() if why is not None}


def _is_gone(row: Checkpoint) -> bool:
    return row.state in ("deleting", "deleted")
