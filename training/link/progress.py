"""A rank's activity: a small shared page, by which the shim distinguishes a hang from work.

`progress_writer` writes it without a lock: a reader may see fields of two moments of a step, and
reads it again later.

    progress/<pid>.bin      eight fields of eight bytes
    progress/<pid>.stacks   where the process writes its stacks when it gets `STACKS_SIGNAL`
"""

import signal
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from trainhall.training.link.regular_file import read_regular

STACKS_SIGNAL = signal.SIGUSR2
"""A process whose page says so answers it with the stacks of all its threads."""


class Activity(IntEnum):
    """A rank's activity. Only `STEPPING` is expected to be short."""

    STARTING = 0
    """Building the model, joining the others, loading a checkpoint."""
    FIRST_STEP = 1
    """Kernels are chosen or compiled, memory is allocated."""
    STEPPING = 2
    READING = 3
    """Waiting for the next batch."""
    EVALUATING = 4
    SAVING = 5
    ENDING = 6
    """The last save, and the report of the result."""
    REGROUPING = 7
    """Leaving a group of ranks, until the next one is known."""
    JOINING = 8
    """Waiting for the others of the next group to come."""
    RECEIVING_STATE = 9
    """The ranks of a newly formed group adopt one state."""


class Part(IntEnum):
    """The part of a step that a rank is in: after the parts of `common.step_clock.Phase` that it
    has finished."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    GRADIENTS = 3
    """Waiting for other ranks' gradients."""
    OPTIMIZER = 4
    BETWEEN = 5
    """After the optimizer, where ranks exchange what they measured."""


# The fields, by their position. Plain numbers: an enum's member costs more than the store.
ACTIVITY = 0
ANSWERS = 1
"""1: the process answers `STACKS_SIGNAL`."""
STEP = 2
PASSED = 3
"""Eight times the number of parts finished in this step, plus the part that the rank is in."""
TIMED_STEPS = 4
TIMED_SECONDS = 5
LONGEST = 6
FIRST = 7
SIZE = 64
_PAGE = struct.Struct("@QQQQQddd")
COUNT = 8


@dataclass(frozen=True)
class RankProgress:
    """The content of a page."""

    activity: Activity = Activity.STARTING
    answers: bool = False
    step: int = 0
    """The newest finished one."""
    parts: int = 0
    """Finished parts of the present step."""
    part: Part = Part.DATA
    mean_seconds: float | None = None
    """The mean time of a step; None before the second."""
    longest_seconds: float = 0.0
    """The longest step so far, first ones left out."""
    first_seconds: float = 0.0
    """The longest first step: of the process, or after a regrouping."""


def folder_of(attempt: Path) -> Path:
    return attempt / "progress"


def read(attempt: Path, pid: int) -> RankProgress | None:
    """Read the page of a process of an attempt; None if it has none."""
    try:
        data = read_regular(folder_of(attempt) / f"{pid}.bin", _PAGE.size)
        activity, answers, step, passed, timed, seconds, longest, first = _PAGE.unpack(data)
        return RankProgress(
            activity=Activity(activity),
            answers=answers == 1,
            step=step,
            parts=passed // COUNT,
            part=Part(passed % COUNT),
            mean_seconds=seconds / timed if timed else None,
            longest_seconds=longest,
            first_seconds=first,
        )
    except (OSError, struct.error, ValueError):
        return None


def newest_step(attempt: Path) -> int | None:
    """Return the newest step that any process of the attempt on this host has finished."""
    pages = folder_of(attempt).glob("*.bin")
    pages_read = [read(attempt, int(page.stem)) for page in pages if page.stem.isdigit()]
    return max((each.step for each in pages_read if each is not None), default=None)


def stacks_path(attempt: Path, pid: int) -> Path:
    return folder_of(attempt) / f"{pid}.stacks"
