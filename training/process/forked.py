"""Cleanup after a fork, of what is copied from the parent; free of torch."""

import os
import random
import sys
from pathlib import Path

EXIT_CRASHED = 70
"""A fork's own code for an exception that its entry point let through (EX_SOFTWARE)."""
PADDING_VARIABLE = "TRAINHALL_PADDING"
"""A process that is forked and not exec'd keeps showing the environment of its ancestor (`ps e`,
`/proc/<pid>/environ`). An ancestor that is started with room in it lets its children write down who
they are, so that they can be found, as an exec'd process can."""


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
