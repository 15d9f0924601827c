"""A file that one process at a time may hold, by flock(2)."""

import fcntl
import os
from pathlib import Path
from typing import Self

from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)


class FileLock:
    """Held from `taken` to the end of the `with`, or of the process however it ends: the kernel
    frees it.

    Raises:
        OSError: the file, or a folder above it, cannot be made.
    """

    def __init__(self, path: Path) -> None:
        # Users of jobs have to get through a folder of data, and need not know what is in it.
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def taken(self) -> bool:
        """Return whether it is ours now. On file systems without locks everybody may."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            logger.warning("lock_unsupported", folder=self._path.parent, error=error.strerror)
        return True
