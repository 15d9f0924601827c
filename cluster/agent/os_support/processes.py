"""The processes of an attempt: finding every one of them, however detached, and ending it."""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "TRAINHALL_ATTEMPT_FOLDER"
"""Each rank has it in its environment, and whatever a rank starts inherits it."""


@dataclass(frozen=True)
class Use:
    """Resources that a process uses."""

    cpu_seconds: float
    """Since it began."""
    memory: int
    """Resident, bytes."""


def use(pid: int) -> Use | None:
    """Return the resources that a process uses; None: it is gone."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Use(times.user + times.system, process.memory_info().rss)
    except psutil.Error:
        return None


def marked(folder: Path) -> set[int]:
    """Return live processes with an attempt's mark, except unreadable ones of other users."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if pid != os.getpid() and psutil.Process(pid).environ().get(MARK) == str(folder):
                found.add(pid)
    return found


def descendants() -> set[int]:
    """Return live descendants of this process, adopted ones included."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; one that is gone already is what was wanted."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def send_groups(leaders: Iterable[int], number: signal.Signals) -> None:
    """Signal process groups by their leaders."""
    for leader in leaders:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def reap_all() -> None:
    """Reap every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wake_on_signals() -> int:
    """Return a descriptor that becomes readable when a child ends or this process gets a signal."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # A terminal that closes is no reason to end.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reader
