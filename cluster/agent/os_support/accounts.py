"""Acting as another user, in this thread and for files alone; Linux only, and as root.

A job that runs as a user of its own owns the folder of its attempt. It may put links there that
lead anywhere. So an agent touches what is inside with the rights of the folder's owner: the kernel
refuses it what it would refuse the job.
"""

import contextlib
import ctypes
import errno
import functools
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainhall.cluster.agent.os_support.linux import IS_LINUX

MAX_LINKS = 40
_PASS = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_UNCHANGED = ctypes.c_uint(2**32 - 1)


class Owner(NamedTuple):
    """User and group of a file."""

    uid: int
    gid: int


def owner_of(path: Path) -> Owner | None:
    """Return who owns a file; None: this process itself, or nobody as whom it could act."""
    if not IS_LINUX or os.geteuid() != 0:
        return None
    try:
        found = path.lstat()
    except OSError:
        return None
    return Owner(found.st_uid, found.st_gid) if found.st_uid != 0 else None


def has_name(owner: Owner) -> bool:
    """Return whether the user is known to this host, and may run other programs, too."""
    try:
        pwd.getpwuid(owner.uid)
    except KeyError:
        return False
    return True


def groups_of(owner: Owner) -> list[int]:
    """Return all groups of a user, with the owner's; none if this host does not know the user."""
    try:
        return os.getgrouplist(pwd.getpwuid(owner.uid).pw_name, owner.gid)
    except KeyError:
        return []


@contextlib.contextmanager
def acting_as(owner: Owner | None) -> Iterator[None]:
    """Touch files with an owner's rights, in this thread, until the block ends.

    Nothing may be awaited within: the thread would do other work with these rights.

    Raises:
        PermissionError: this process may not act as that user.
    """
    if owner is None:
        yield
        return
    # The group first: the next call drops the right to change it.
    gid = _set("setfsgid", owner.gid)
    try:
        uid = _set("setfsuid", owner.uid)
        try:
            yield
        finally:
            _set("setfsuid", uid)
    finally:
        _set("setfsgid", gid)


@contextlib.contextmanager
def reached(folder: Path) -> Iterator[Path]:
    """Return another path of a folder, which nobody can lead elsewhere meanwhile.

    Links of root count, those of other users do not: in what root does they could lead it to
    another user's files.

    Raises:
        OSError: there is no such folder, or a link of another user is on the way (EPERM).
    """
    left, links = list(folder.parts[1:]), 0
    fd = os.open("/", _PASS)
    try:
        while left:
            step = os.open(left.pop(0), _PASS | os.O_NOFOLLOW, dir_fd=fd)
            found = os.fstat(step)
            if not stat.S_ISLNK(found.st_mode):
                os.close(fd)
                fd = step
                continue
            try:
                target, links = Path(os.readlink("", dir_fd=step)), links + 1
            finally:
                os.close(step)
            if found.st_uid != 0 or links > MAX_LINKS:
                raise PermissionError(errno.EPERM, "a link of another user leads there", folder)
            left = [*target.parts, *left]
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def hand_over(folder: Path, owner: Owner) -> None:
    """Give a folder of this process, and all in it, to another user, who alone may enter it.

    Nobody else may be able to write there.
    """
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(base, name), *owner, follow_symlinks=False)
    folder.chmod(0o700)
    os.chown(folder, *owner, follow_symlinks=False)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _set(call: str, number: int) -> int:
    """Call `setfsuid` or `setfsgid`, which report no error; return the number of before."""
    function = getattr(_libc(), call)
    before = int(function(ctypes.c_uint(number)))
    if int(function(_UNCHANGED)) != number:
        raise PermissionError(f"{call}({number}) has no effect: this process may not change it")
    return before
