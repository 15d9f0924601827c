"""Agreement among the ranks of one save or load."""

import contextlib
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

import torch.distributed as dist

from trainhall.distributed import breakable
from trainhall.training.checkpoint.format.errors import SaveFailedError

T = TypeVar("T")


class Ranks(Protocol):
    """The processes that act together, and this one's place among them."""

    rank: int
    size: int

    def gather(self, value: T) -> list[T]:
        """Gather the values of all ranks, in rank order, on every rank."""


Location = tuple[str, int, int]


def location_of(folder: Path) -> Location:
    """Return the running kernel through which this process sees a folder, and its number there.

    Processes of one location read the same bytes: they share its file systems and their caches.
    """
    # Copies of one virtual machine may share the boot's number, hosts without one only the name.
    kernel = socket.gethostname()
    with contextlib.suppress(OSError):
        kernel += Path("/proc/sys/kernel/random/boot_id").read_text()
    try:
        stat = folder.stat()
    except OSError:
        return (kernel, -1, -1)
    return (kernel, stat.st_dev, stat.st_ino)


class SingleProcess:
    """A single process."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        return [value]


class Group:
    """The ranks of a process group with a backend for host memory (Gloo).

    The group may be used by one thread at a time: collectives of two threads would mix.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank: int = dist.get_rank(group)
        self.size: int = dist.get_world_size(group)

    def gather(self, value: T) -> list[T]:
        return breakable.gather_objects(value, self._group)


def clone_group(group: dist.ProcessGroup, timeout: timedelta) -> Group:
    """Make a group of the same ranks with connections of their own, for a background thread. A
    collective."""
    made = dist.new_group(dist.get_process_group_ranks(group), timeout=timeout, backend="gloo")
    return Group(made)


def together(ranks: Ranks, action: Callable[[], T]) -> list[T]:
    """Run an action on every rank; the results of all, or an exception on all.

    Raises:
        SaveFailedError: it failed on other ranks only. A rank on which it failed raises its own
            error.
    """
    error: Exception | None = None
    result: T | None = None
    try:
        result = action()
    except Exception as caught:
        error = caught
    message = None if error is None else f"{type(error).__name__}: {error}"
    outcomes = ranks.gather((result, message))
    if error is not None:
        raise error
    failed = [f"rank {i}: {text}" for i, (_, text) in enumerate(outcomes) if text is not None]
    if failed:
        raise SaveFailedError("; ".join(failed))
    return [value for value, _ in outcomes]  # type: ignore[misc]
