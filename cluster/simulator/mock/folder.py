"""Data folder of a simulated cluster: a temporary one that goes with its process.

A process that is killed leaves its folder behind. Each folder is locked as long as its process
lives, so that the next one finds what is unused, and removes it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "trainhall-mock-"
FRESH_SECONDS = 60.0
"""Another process may be between making a folder and locking it."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Open a folder of this process alone; first remove those of killed processes."""
    _remove_leftovers(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_leftovers(below: Path) -> None:
    for folder in below.glob(f"{PREFIX}*"):
        # It may be another user's, or vanish meanwhile.
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > FRESH_SECONDS:
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # in use
    finally:
        os.close(lock)
