"""`recovery.on_isolation: stop`: the shim ends its ranks before the coordinator declares the
node lost.

An agent cannot tell a dead coordinator from a cut network, and it may be frozen or dead itself. So
the agent only passes on *when the newest acknowledged report was sent*, and the shim alone enforces
the rule. It is written down, with its proof, in `docs/nodes.md`; in short:

- the agent notes when it *sends* each report. When the coordinator acknowledges one, that time
  goes into a file of the attempt (`write_last_ack`), never an earlier one after a later one;
- the shim reads the file several times a second. `Limits` after the time in it, the ranks are asked
  to save and end, and what is left of them is killed.

All times are seconds of a clock that keeps counting while the host sleeps and never jumps (`now`).
"""

import contextlib
import errno
import os
import struct
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import REPLACED, open_regular, read_regular

CHECK_SECONDS = 0.25
"""Between two polls: a wait by the usual clock would sleep with the host."""
MARGIN_SECONDS = 0.5
MARGIN_SHARE = 0.05
"""Share of the lost timeout kept as margin, at least: for polling, kills, and clock drift."""
SAVING_SHARE = 1 / 3
"""The most of the lost timeout that goes into saving and into a script's grace."""

_TIME = struct.Struct("@d")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's counts while the host is suspended; so does the monotonic one of macOS."""


class Step(Enum):
    """Action that the rule requires."""

    CONTINUE = "continue"
    SAVE = "save and end"
    KILL = "end now"


@dataclass(frozen=True)
class Limits:
    """Seconds after the newest acknowledged report was sent."""

    save: float
    """From here on the ranks save and end."""
    kill: float
    """From here on they are killed."""


def limits(lost_after: float, saving: float) -> Limits:
    """Compute the limits.

    Args:
        lost_after: silence in seconds after which the coordinator declares a node lost.
        saving: how long the ranks would like to take to end, in seconds.
    """
    kill = lost_after - max(MARGIN_SECONDS, MARGIN_SHARE * lost_after)
    return Limits(kill - min(saving, SAVING_SHARE * lost_after), kill)


def step(at: float, acked: float, bounds: Limits) -> Step:
    """Return the action required at a time; the newest acknowledged report was sent at `acked`."""
    without_ack = at - acked
    if without_ack >= bounds.kill:
        return Step.KILL
    return Step.SAVE if without_ack >= bounds.save else Step.CONTINUE


def now() -> float:
    """Return seconds since the host started, its sleep included."""
    return time.clock_gettime(_CLOCK)


def write_last_ack(folder: AttemptFolder, sent: float) -> None:
    """Notify the shim of a folder when the newest acknowledged report was sent."""
    try:
        fd = open_regular(_path(folder), os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        if error.errno in (errno.ENOENT, *REPLACED):
            return  # the attempt is being removed, or its job has replaced the file
        raise
    try:
        os.pwrite(fd, _TIME.pack(sent), 0)
    finally:
        os.close(fd)


class IsolationWatch:
    """The shim's side."""

    def __init__(self, folder: AttemptFolder, lost_after: float) -> None:
        self._path = _path(folder)
        self._lost_after = lost_after
        self._acked = float("-inf")

    def poll(self, saving: float) -> Step:
        """Return the action required now; `saving` as in `limits`."""
        at = now()
        with contextlib.suppress(OSError, struct.error):
            acked = _TIME.unpack(read_regular(self._path, _TIME.size))[0]
            if self._acked < acked <= at:
                self._acked = acked
        return step(at, self._acked, limits(self._lost_after, saving))

    def seconds_left(self) -> float:
        """Return the time until the ranks have to be dead, as of the last poll."""
        return self._acked + limits(self._lost_after, 0.0).kill - now()


def watch(folder: AttemptFolder, launch: Launch) -> IsolationWatch | None:
    """Return the watch; None where ranks keep running without the coordinator."""
    if launch.isolation_seconds is None:
        return None
    return IsolationWatch(folder, launch.isolation_seconds)


def _path(folder: AttemptFolder) -> Path:
    return folder.path / "last-ack.bin"
