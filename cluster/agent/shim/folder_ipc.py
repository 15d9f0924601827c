"""Signals between shim and agent: the shim's claim on a folder, and its wake-up pipe.

Exactly one shim ever runs in a folder: the first to lock `shim.lock` writes its pid there, and one
that finds a pid leaves. The shim lives as long as the lock is held; a pid alone could belong to
another process by now.
"""

import contextlib
import errno
import fcntl
import os
import struct
import time
from enum import Enum
from pathlib import Path

from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command
from trainhall.training.link.regular_file import REPLACED, open_regular

LAUNCH = ord("L")
"""Beside the digits of commands: read `launch.json` again."""
_FLOCK = struct.Struct("@hhqqi4x")
"""Layout of `struct flock` on 64-bit Linux: type, whence, start, length, pid."""
CLAIM_SECONDS = 1.0
"""The agent's check of the lock holds it for microseconds; longer means another shim."""


def lock_path(folder: AttemptFolder) -> Path:
    return folder.path / "shim.lock"


def command_path(folder: AttemptFolder) -> Path:
    """Return the named pipe that takes commands: digits of `Command`, or `LAUNCH`."""
    return folder.path / "command.fifo"


def log_path(folder: AttemptFolder) -> Path:
    """Return the log of the shim and the rendezvous store, empty unless one is broken."""
    return folder.path / "shim.log"


class AlreadyClaimedError(Exception):
    """Another shim runs, or ran, in this folder."""


class Claim(Enum):
    NONE = "none"
    """No shim has begun here."""
    HELD = "held"
    """A shim lives."""
    RELEASED = "released"
    """A shim ran here and has ended."""


def claim(folder: AttemptFolder) -> int:
    """Become the folder's only shim; the lock is held until this process ends.

    Returns:
        The lock's descriptor. Closing it, or any other of the same file, gives the lock up.

    Raises:
        AlreadyClaimedError: there is, or was, one.
        FileNotFoundError: the folder is gone: the attempt is not wanted any more.
    """
    fd = os.open(lock_path(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + CLAIM_SECONDS
    while not _lock(fd):
        if time.monotonic() > deadline:
            os.close(fd)
            raise AlreadyClaimedError
        time.sleep(0.005)
    if os.read(fd, 1):
        os.close(fd)
        raise AlreadyClaimedError
    os.write(fd, str(os.getpid()).encode())
    return fd


def read_claim(folder: AttemptFolder) -> Claim:
    """Return the state of the folder's claim. Not to be called by the shim itself.

    A lock that the job has replaced reads as released: what is left of the attempt is ended.
    """
    try:
        fd = open_regular(lock_path(folder), os.O_RDWR)
    except FileNotFoundError:
        return Claim.NONE
    except OSError as error:
        if error.errno not in REPLACED:
            raise
        return Claim.RELEASED
    try:
        if not _lock(fd):
            return Claim.HELD
        return Claim.RELEASED if os.read(fd, 1) else Claim.NONE
    finally:
        os.close(fd)


def shim_pid(folder: AttemptFolder) -> int | None:
    """Return the process that holds the lock, by the kernel's word; None: none does. Linux only."""
    with contextlib.suppress(OSError):
        fd = open_regular(lock_path(folder))
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        finally:
            os.close(fd)
        return pid if kind != fcntl.F_UNLCK else None
    return None


def _lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def send_command(folder: AttemptFolder, command: Command) -> bool:
    """Give the shim a command; False when none listens (not yet, or not any more).

    Repeating a command is harmless: to be sure, repeat it until `status.json` shows it.
    """
    return write_to_pipe(command_path(folder), str(int(command)).encode())


def notify_launch(folder: AttemptFolder) -> bool:
    """Ask the shim to read its launch again; as `send_command`."""
    return write_to_pipe(command_path(folder), bytes([LAUNCH]))


def ring_doorbell(doorbell: Path | None) -> None:
    """Notify the agent, if one listens, that there is something to read."""
    if doorbell is not None:
        write_to_pipe(doorbell, b"\n")


def make_pipe(path: Path) -> int:
    """Open a named pipe for reading without waiting; make it if need be."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # Opened for writing too: so it never reads as closed when the last writer leaves.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def drain(fd: int) -> bytes:
    """Read all that waits in a descriptor that does not block."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, 4096):
            data += chunk
    return data


def write_to_pipe(path: Path, data: bytes) -> bool:
    """Write to a named pipe without waiting; False when nobody reads, or it is full."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT, errno.ENOTDIR, *REPLACED):
            return False
        raise
    try:
        os.write(fd, data)
    except (BlockingIOError, BrokenPipeError):
        # Full of earlier wake-ups, or its reader has just left.
        return False
    finally:
        os.close(fd)
    return True
