"""Writer of a process's progress page: less than a microsecond a step.

Every field is one aligned store into mapped memory.
"""

import contextlib
import faulthandler
import mmap
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TextIO

from trainhall.training.link.progress import (
    ACTIVITY,
    ANSWERS,
    COUNT,
    FIRST,
    LONGEST,
    PASSED,
    SIZE,
    STACKS_SIGNAL,
    STEP,
    TIMED_SECONDS,
    TIMED_STEPS,
    Activity,
    Part,
    folder_of,
    stacks_path,
)

_STEPPING, _READING, _BETWEEN = int(Activity.STEPPING), int(Activity.READING), int(Part.BETWEEN)
_FIRST_STEP = int(Activity.FIRST_STEP)


class Progress:
    """Progress page of this process.

    Args:
        attempt: the attempt's folder; None: the page is in memory only.
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
            return memoryview(bytearray(SIZE)).cast("Q")
        pid = os.getpid()
        folder_of(attempt).mkdir(exist_ok=True)
        path = folder_of(attempt) / f"{pid}.bin"
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            slots = memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")
        # A script may have a use of its own for the signal.
        if signal.getsignal(STACKS_SIGNAL) == signal.SIG_DFL:
            self._stacks = stacks_path(attempt, pid).open("w")
            faulthandler.register(STACKS_SIGNAL, self._stacks, all_threads=True, chain=False)
            slots[ANSWERS] = 1
        return slots

    def close(self) -> None:
        """Write nothing any more, and answer no signal."""
        if self._stacks is not None:
            faulthandler.unregister(STACKS_SIGNAL)
            self._stacks.close()
            self._slots[ANSWERS] = 0

    def begin(self, step: int) -> None:
        """Start to train after `step`; the next step may take unusually long."""
        self._slots[STEP] = step
        self._had_first = False
        self._last = monotonic()
        self._slots[ACTIVITY] = Activity.FIRST_STEP

    def passed(self, part: int) -> None:
        """Note that a part of the step has ended.

        Args:
            part: its number in `training.common.step_clock.Phase`.
        """
        self._passed += COUNT
        # The part after it has the next number.
        self._slots[PASSED] = self._passed + part + 1

    def reading(self) -> None:
        """Note that the rank waits for a batch."""
        if self._had_first:
            self._slots[ACTIVITY] = _READING

    def read(self) -> None:
        """Note that the batch is there."""
        if self._had_first:
            self._slots[ACTIVITY] = _STEPPING

    def step(self, step: int) -> None:
        """Note that a step is finished."""
        now = monotonic()
        elapsed = now - self._last
        self._last = now
        slots = self._slots
        if self._had_first:
            if elapsed > self._longest:
                self._longest = elapsed
                self._times[LONGEST] = elapsed
            self._timed += 1
            self._seconds += elapsed
            if elapsed > self._longest_of.get(_STEPPING, 0.0):
                self._longest_of[_STEPPING] = elapsed
            slots[TIMED_STEPS] = self._timed
            self._times[TIMED_SECONDS] = self._seconds
        else:
            self._had_first = True
            slots[ACTIVITY] = _STEPPING
            if elapsed > self._first:
                self._first = elapsed
                self._times[FIRST] = elapsed
        self._passed = 0
        slots[PASSED] = _BETWEEN
        slots[STEP] = step

    def advanced(self) -> None:
        """Note that the activity makes progress."""
        self._passed += COUNT
        self._slots[PASSED] = self._passed

    def longest(self) -> float | None:
        """Return the longest time of the present activity so far, in seconds, first steps left out;
        None if it is the first. Any thread may ask."""
        activity = int(self._slots[ACTIVITY])
        steps = activity in (_STEPPING, _READING, _FIRST_STEP)
        return self._longest_of.get(_STEPPING if steps else activity)

    @property
    def activity(self) -> Activity:
        """The rank's activity. Any thread may ask."""
        return Activity(self._slots[ACTIVITY])

    def set_activity(self, activity: Activity) -> None:
        """Set the activity until `begin`, or until the end."""
        self._slots[ACTIVITY] = activity

    @contextlib.contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Within it the rank does something else than a step, whose time does not count."""
        self._slots[ACTIVITY] = activity
        begun = monotonic()
        try:
            yield
            elapsed = monotonic() - begun
            self._longest_of[activity] = max(elapsed, self._longest_of.get(activity, 0.0))
        finally:
            self._slots[ACTIVITY] = Activity.STEPPING if self._had_first else Activity.FIRST_STEP
            self._last = monotonic()
