"""Errors of checkpoints.

CheckpointError
├── BadCheckpointError      a folder is damaged, incomplete or not understood
│   └── NewerFormatError    it is whole, and written by a newer Trainhall
├── NoGoodCheckpointError   none of the candidates can be loaded
│   └── UnreadableCheckpointError    since a host's system does not read one, or has none of them
├── StateMismatchError      a good checkpoint does not fit the model or the optimizer
├── NoModelError            a script's checkpoint has no model in it
├── SaveFailedError         another rank could not write its part
└── NotRemovedError         a folder is not a checkpoint and is left alone
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a checkpoint's folder."""

    path: str
    """The file within the folder; `.` is the folder itself."""
    expected: str
    found: str
    is_damage: bool = True
    """False if the file may be intact: the system does not let it be read, or its format is
    newer."""

    def __str__(self) -> str:
        what = "the folder" if self.path == "." else self.path
        return f"{what}: expected {self.expected}, found {self.found}"


class CheckpointError(RuntimeError):
    """Base of the errors of checkpoints."""


class BadCheckpointError(CheckpointError):
    """A folder is damaged, incomplete or not understood."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class NewerFormatError(BadCheckpointError):
    """A whole checkpoint, written by a newer Trainhall."""


class SkipReason(StrEnum):
    """Why a candidate was not loaded. Only one of them says that its files are bad."""

    MISSING = "missing"
    """A rank was not given it, or does not find its folder."""
    GONE = "gone"
    """No rank finds its folder."""
    DAMAGED = "damaged"
    """A rank finds other bytes than were written, or lacks some of them."""
    UNREADABLE = "unreadable"
    """A rank's operating system does not let it read."""
    MISMATCH = "mismatch"
    """The name is no checkpoint's, or it has a format that this version does not know."""
    DISAGREEMENT = "disagreement"
    """The ranks find different checkpoints under its name."""


@dataclass(frozen=True)
class PassedOver:
    """A candidate that was not loaded, and why."""

    name: str
    reason: SkipReason
    text: str
    """The reason in plain words, with what was expected and found where."""

    def __str__(self) -> str:
        return f"{self.name} was not used: {self.text}"


class NoGoodCheckpointError(CheckpointError):
    """None of the candidates can be loaded."""

    def __init__(self, notes: Sequence[PassedOver]) -> None:
        self.notes = list(notes)
        super().__init__("no checkpoint can be loaded: " + "; ".join(map(str, self.notes)))


class UnreadableCheckpointError(NoGoodCheckpointError):
    """None of the candidates can be loaded, and they may be good, and the host to blame: its system
    does not read one of them, or none is there, as where its storage is not mounted."""

    def __init__(self, notes: Sequence[PassedOver], folder: Path) -> None:
        super().__init__(notes)
        self.args = (
            f"{self}. Once {folder} can be read again, resume from one of them: "
            "`trainhall ckpt restore`",
        )


class StateMismatchError(CheckpointError):
    """A good checkpoint does not fit the model or the optimizer."""


class NoModelError(CheckpointError):
    """A script's checkpoint has no model in it."""


class SaveFailedError(CheckpointError):
    """Another rank could not write its part of a checkpoint."""


class NotSavedError(RuntimeError):
    """A checkpoint that the job cannot do without was not written."""


class NotRemovedError(CheckpointError):
    """A folder is not a checkpoint and is left alone."""
