"""Cleanup after a fork, of what is copied from the parent; free of torch."""

import os
import random
import sys
from pathlib import Path


def close_files(keep: tuple[int, ...] = ()) -> None:
    """Close every open file beyond standard error, except `keep`."""
    start = 3
    for fd in sorted(keep):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, _highest_file() + 1)


def reseed() -> None:
    """Seed random numbers of its own."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _highest_file() -> int:
    for listing in ("/proc/self/fd", "/dev/fd"):
        if Path(listing).is_dir():
            return max(int(name) for name in os.listdir(listing) if name.isdigit())
    return os.sysconf("SC_OPEN_MAX")
