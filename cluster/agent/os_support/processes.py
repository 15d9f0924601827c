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


CLOCK_SECONDS = 2.0
"""Error of the time at which a process began, which the kernel counts since the boot."""


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


def of_user(uid: int, since: float, spare: set[int]) -> set[int]:
    """Return live processes of a user, whatever they call themselves.

    Args:
        since: a time (Unix); what began earlier is left out.
        spare: pids that are left out with all their descendants.
    """
    parents: dict[int, int] = {}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            parents[process.pid] = process.ppid()
            is_recent = process.create_time() >= since - CLOCK_SECONDS
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            if uid in process.uids() and is_recent and not is_zombie:
                found.append(process.pid)
    return {pid for pid in found if not _lineage(pid, parents) & spare}


def _lineage(pid: int, parents: dict[int, int]) -> set[int]:
    """Return a process and its ancestors."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def adopted(own: set[int]) -> set[int]:
    """Return live children of this process that it did not start, and their descendants.

    Args:
        own: the children that it started. None may be started meanwhile.
    """
    found = set()
    for child in psutil.Process().children():
        if child.pid not in own:
            with contextlib.suppress(psutil.Error):
                for process in (child, *child.children(recursive=True)):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.add(process.pid)
    return found


def reap_adopted(own: set[int]) -> None:
    """Reap ended children that this process did not start; somebody waits for its own."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


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
