"""Temporary files in memory, where there is room: tests write much that no one reads later."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free: several times what tests hold at once."""


def run_in_memory(run: Callable[[], int]) -> int:
    """Run tests whose temporary files lie in memory; returns the exit code.

    A disk's file system takes a tenth of the processor time of all tests, and has them wait. Where
    memory is short, or `TMPDIR` names a folder, files lie where they would anyway. Those of tests
    that failed are kept.
    """
    if "TMPDIR" in os.environ or not _has_room():
        return run()
    # Short, since paths of sockets are: 108 bytes.
    folder = tempfile.mkdtemp(prefix="th-", dir=SHARED_MEMORY)
    os.chmod(folder, 0o1777)  # as /tmp is: jobs of other users write there, too
    os.environ["TMPDIR"] = folder
    code = 0
    try:
        code = run()
    finally:
        if code == 0:
            shutil.rmtree(folder, ignore_errors=True)
    if code != 0:
        print(f"\nFiles of failed tests take memory until you delete them: {folder}", flush=True)
    return code


def _has_room() -> bool:
    try:
        system = os.statvfs(SHARED_MEMORY)
    except OSError:  # no Linux
        return False
    # Some tests start programs that they write.
    usable = os.access(SHARED_MEMORY, os.W_OK) and not system.f_flag & os.ST_NOEXEC
    free = min(system.f_bavail * system.f_frsize, psutil.virtual_memory().available)
    return usable and free >= ROOM
