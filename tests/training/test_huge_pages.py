"""Memory moved to huge pages holds what it held."""

import mmap
import sys
from pathlib import Path

import pytest

from trainhall.training import huge_pages

MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has regions to move")
def test_regions_are_whole_huge_pages_of_private_memory() -> None:
    memory = mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        found = huge_pages.regions()
        assert sum(length for _, length in found) >= 28 * MIB
        for start, length in found:
            assert start % (2 * MIB) == 0
            assert 0 < length <= 16 * MIB
            assert length % (2 * MIB) == 0
    finally:
        memory.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has regions to move")
def test_collapsing_changes_no_byte() -> None:
    pattern = bytes(range(256)) * 4096
    memory = mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.write(pattern * 16)
        before = anonymous_huge_kilobytes()
        moved = [huge_pages.collapse(region) for region in huge_pages.regions()]
        memory.seek(0)
        assert memory.read() == pattern * 16
        if any(moved):
            assert anonymous_huge_kilobytes() > before
    finally:
        memory.close()


def test_a_region_that_is_gone_is_left_alone() -> None:
    if sys.platform == "linux":
        assert huge_pages.collapse((0, 2 * MIB)) is False
    else:
        assert huge_pages.regions() == []


def anonymous_huge_kilobytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))
