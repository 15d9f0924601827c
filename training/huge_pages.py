"""Memory that forks quickly: huge pages for what a process holds already.

A fork copies one table entry for each page. Two hundred megabytes of imported modules are 57,000
of them and take 15 ms; in pages of 2 MiB they take 1 ms. The pages are still shared until written
to, and a write copies 4 KiB as before.
"""

import contextlib
import ctypes
import sys
from pathlib import Path

_SIZE = 1 << 21
_STEP = 8 * _SIZE
"""Bytes collapsed by one call: some milliseconds."""
_MADV_COLLAPSE = 25

Region = tuple[int, int]
"""Address and length, both multiples of a huge page's size."""


def regions() -> list[Region]:
    """The parts of this process's private memory that may be moved to huge pages."""
    if sys.platform != "linux":
        return []
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            addresses, access, _, _, inode, *name = line.split(maxsplit=5)
            if access != "rw-p" or inode != "0" or (name and name[0] != "[heap]"):
                continue
            start, end = (int(address, 16) for address in addresses.split("-"))
            start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
            found += [(at, min(_STEP, end - at)) for at in range(start, end, _STEP)]
    return found


def collapse(region: Region) -> bool:
    """Move a region to huge pages now; False where the kernel has none to give (before Linux 6.1).

    A region that is gone, or was never written to, is left as it is.
    """
    start, length = region
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(madvise(start, length, _MADV_COLLAPSE) == 0)
