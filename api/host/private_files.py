"""Files of the coordinator, for its own user alone."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o077
_MADE_BEFORE = (
    "trainhall.db", "trainhall.db-wal", "trainhall.db-shm",
    "checkpoints", "code", "logs", "uploads",
)  # fmt: skip
"""Files and folders that may stem from an earlier version, which let every user read them."""


def keep_private(data_dir: Path) -> None:
    """Let nothing that this process makes be read by other users, nor what it made before.

    The data folder itself stays as it is: a user may have given one of their own.
    """
    os.umask(_OTHERS)
    for name in _MADE_BEFORE:
        path = data_dir / name
        with suppress(OSError):  # it is not there yet, or another user's
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
