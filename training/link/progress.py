"""A rank's activity: a small shared page, by which the shim distinguishes a hang from work.

Writing costs less than a microsecond a step: every field is one aligned store into mapped memory,
and nothing is locked. A reader may see a step's fields of two moments; it looks again later.

    progress/<pid>.bin      eight fields of eight bytes
    progress/<pid>.stacks   where the process writes its stacks when it gets `STACKS_SIGNAL`
"""

import contextlib
import faulthandler
import mmap
import os
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from time import monotonic
from typing import TextIO

STACKS_SIGNAL = signal.SIGUSR2
"""A process whose page says so answers it with the stacks of all its threads."""


class Doing(IntEnum):
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
    """The last save, the result, the goodbye."""
    REGROUPING = 7
    """Leaving a group of ranks, until the next one is known."""
    MEETING = 8
    """Waiting for the others of the next group to come."""
    TAKING_OVER = 9
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
    """Behind the optimizer; here ranks exchange what they measured."""


# The fields, by their position. Plain numbers: an enum's member costs more than the store.
_DOING = 0
_ANSWERS = 1
"""1: the process answers `STACKS_SIGNAL`."""
_STEP = 2
_PASSED = 3
"""Eight times the number of parts finished in this step, plus the part that the rank is in."""
_TIMED_STEPS = 4
_TIMED_SECONDS = 5
_LONGEST = 6
_FIRST = 7
_SIZE = 64
_PAGE = struct.Struct("@QQQQQddd")
_COUNT = 8
_STEPPING, _READING, _BETWEEN = int(Doing.STEPPING), int(Doing.READING), int(Part.BETWEEN)
_FIRST_STEP = int(Doing.FIRST_STEP)


@dataclass(frozen=True)
class RankProgress:
    """The content of a page."""

    doing: Doing = Doing.STARTING
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
        data = (folder_of(attempt) / f"{pid}.bin").read_bytes()
        doing, answers, step, passed, timed, seconds, longest, first = _PAGE.unpack(data)
        return RankProgress(
            doing=Doing(doing),
            answers=answers == 1,
            step=step,
            parts=passed // _COUNT,
            part=Part(passed % _COUNT),
            mean_seconds=seconds / timed if timed else None,
            longest_seconds=longest,
            first_seconds=first,
        )
    except (FileNotFoundError, struct.error, ValueError):
        return None


def newest_step(attempt: Path) -> int | None:
    """The newest step that any process of the attempt on this host has finished."""
    pages = folder_of(attempt).glob("*.bin")
    pages_read = [read(attempt, int(page.stem)) for page in pages if page.stem.isdigit()]
    return max((each.step for each in pages_read if each is not None), default=None)


def stacks_path(attempt: Path, pid: int) -> Path:
    return folder_of(attempt) / f"{pid}.stacks"


class Progress:
    """This process's page.

    Args:
        attempt: the attempt's folder; None: nobody reads it, and nothing is written.
    """

    def __init__(self, attempt: Path | None = None) -> None:
        self._stacks: TextIO | None = None
        self._slots = self._map(attempt)
        self._times = self._slots.cast("B").cast("d")
        self._last = monotonic()
        self._passed = 0
        self._timed = 0
        self._seconds = 0.0
        self._longest = self._first = 0.0
        self._longest_of: dict[int, float] = {}
        self._had_first = False

    def _map(self, attempt: Path | None) -> memoryview:
        if attempt is None:
            return memoryview(bytearray(_SIZE)).cast("Q")
        pid = os.getpid()
        folder_of(attempt).mkdir(exist_ok=True)
        path = folder_of(attempt) / f"{pid}.bin"
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            slots = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("Q")
        # A script may have a use of its own for the signal.
        if signal.getsignal(STACKS_SIGNAL) == signal.SIG_DFL:
            self._stacks = stacks_path(attempt, pid).open("w")
            faulthandler.register(STACKS_SIGNAL, self._stacks, all_threads=True, chain=False)
            slots[_ANSWERS] = 1
        return slots

    def close(self) -> None:
        """Tell nothing any more, and answer no signal."""
        if self._stacks is not None:
            faulthandler.unregister(STACKS_SIGNAL)
            self._stacks.close()
            self._slots[_ANSWERS] = 0

    def begin(self, step: int) -> None:
        """Start to train after `step`; what the next one takes may be out of the ordinary."""
        self._slots[_STEP] = step
        self._had_first = False
        self._last = monotonic()
        self._slots[_DOING] = Doing.FIRST_STEP

    def passed(self, part: int) -> None:
        """A part of the step has ended; `part` is its number in `clock.Phase`."""
        self._passed += _COUNT
        # The part after it has the next number.
        self._slots[_PASSED] = self._passed + part + 1

    def reading(self) -> None:
        """The rank waits for a batch."""
        if self._had_first:
            self._slots[_DOING] = _READING

    def read(self) -> None:
        """The batch is there."""
        if self._had_first:
            self._slots[_DOING] = _STEPPING

    def step(self, step: int) -> None:
        """A step is finished."""
        now = monotonic()
        elapsed = now - self._last
        self._last = now
        slots = self._slots
        if self._had_first:
            if elapsed > self._longest:
                self._longest = elapsed
                self._times[_LONGEST] = elapsed
            self._timed += 1
            self._seconds += elapsed
            if elapsed > self._longest_of.get(_STEPPING, 0.0):
                self._longest_of[_STEPPING] = elapsed
            slots[_TIMED_STEPS] = self._timed
            self._times[_TIMED_SECONDS] = self._seconds
        else:
            self._had_first = True
            slots[_DOING] = _STEPPING
            if elapsed > self._first:
                self._first = elapsed
                self._times[_FIRST] = elapsed
        self._passed = 0
        slots[_PASSED] = _BETWEEN
        slots[_STEP] = step

    def moved(self) -> None:
        """Something of what the rank does is done."""
        self._passed += _COUNT
        self._slots[_PASSED] = self._passed

    def usual(self) -> float | None:
        """The most seconds that what the rank does has taken it so far; None: it is the first time.
        That of a first step is left out. Any thread may ask."""
        doing = int(self._slots[_DOING])
        steps = doing in (_STEPPING, _READING, _FIRST_STEP)
        return self._longest_of.get(_STEPPING if steps else doing)

    @property
    def now(self) -> Doing:
        """The rank's activity. Any thread may ask."""
        return Doing(self._slots[_DOING])

    def doing(self, doing: Doing) -> None:
        """From here on; for what no step follows, or what `begin` ends."""
        self._slots[_DOING] = doing

    @contextlib.contextmanager
    def while_(self, doing: Doing) -> Iterator[None]:
        """Within it the rank does something else than steps, whose time is none of theirs."""
        self._slots[_DOING] = doing
        begun = monotonic()
        yield
        self._longest_of[doing] = max(monotonic() - begun, self._longest_of.get(doing, 0.0))
        self._slots[_DOING] = Doing.STEPPING if self._had_first else Doing.FIRST_STEP
        self._last = monotonic()
