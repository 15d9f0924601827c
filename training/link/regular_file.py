"""Bounded reads of files that a rank may have replaced: by a pipe, a folder, a link, or gigabytes.

The processes of a job write into its attempt's folder. What they leave there must not keep the
agent waiting, fill its memory, or lead it to a file outside.
"""

import errno
import os
import stat
from pathlib import Path

REPLACED = (errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EFBIG)
"""Error numbers that say that a path leads to no regular file of the expected size."""


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file without waiting; return its descriptor.

    Args:
        mode: of the file, if the flags say to make it.

    Raises:
        OSError: it is missing, a link (ELOOP), or not a regular file (EISDIR, EINVAL, ENXIO).
    """
    # O_NONBLOCK: opening a named pipe would wait for its other end. Regular files ignore it.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    found = os.fstat(fd).st_mode
    if stat.S_ISREG(found):
        return fd
    os.close(fd)
    raise OSError(errno.EISDIR if stat.S_ISDIR(found) else errno.EINVAL, "not a regular file", path)


def read_regular(path: Path, limit: int) -> bytes:
    """Read a whole regular file of at most `limit` bytes.

    Raises:
        OSError: as `open_regular`, or EFBIG if it is larger.
    """
    with open(open_regular(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", path)
    return data


def size_of_regular(path: Path) -> int:
    """Return the size of a regular file in bytes; 0 if it is missing, a link or anything else."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
