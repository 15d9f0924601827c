"""Leaving process groups in which a rank is gone, in a process that joins others afterwards."""

import contextlib
import gc
import re
from threading import Thread
from typing import Any

import torch.distributed as dist

from trainhall.distributed import breakable
from trainhall.distributed.breakable import GroupBrokenError
from trainhall.distributed.collectives.errors import CollectiveTimeoutError, PeerLostError
from trainhall.distributed.collectives.transport import PeerGoneError
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.process_group import GroupSupersededError

_LOST = (
    PeerLostError, PeerGoneError, CollectiveTimeoutError, GroupSupersededError, GroupBrokenError,
    dist.DistNetworkError, dist.DistStoreError, dist.DistBackendError,
)  # fmt: skip
_kept: list[dist.ProcessGroup] = []
"""Groups whose threads may never end; they end with the process."""
_OWN = (
    "ncclInvalidUsage",
    "ncclInvalidArgument",
    "ncclUnhandledCudaError",
    "shared memory segment",
)
"""Parts of NCCL's error messages that concern this rank alone: two ranks on one GPU, a device
that fails, a `/dev/shm` that is too small. No other rank is gone, so none would coordinate a
restart."""
_GLOO = ("gloo/", "pair closure")
"""In the messages of Gloo's errors, which are of no class of their own."""
_PEER = re.compile(
    r"connection (closed|reset|refused|aborted)|broken pipe|timed out|pair closure", re.IGNORECASE
)
"""Gloo's messages about another rank that is gone or does not come."""
_SOURCE = re.compile(r"^\[[^\]]*\] ?")
"""The source position in an error of Gloo's."""


def is_broken(error: BaseException) -> bool:
    """Return whether the connection to other ranks failed, not this rank's own computation."""
    if isinstance(error, _LOST):
        return not any(mark in str(error) for mark in _OWN)
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _GLOO)


def message_of(error: BaseException) -> str | None:
    """Describe a broken connection; None where the error says more than that another rank is gone:
    a call that others made with another shape, an interface that is not there.

    Gloo's words are about its sources and other processes in general; it is named, as its errors
    have no class that would show a network error.
    """
    if isinstance(error, _LOST):
        return str(error)
    text = _SOURCE.sub("", str(error)).split("\n", 1)[0].split(". ", 1)[0]
    if not _PEER.search(text):
        return None
    happened = "timed out waiting for" if "Timed out" in text else "lost its connection to"
    return f"this rank {happened} another rank (Gloo: {text})"


def break_off() -> None:
    """End every collective under way in this process, and make those of its peers fail.

    Any thread may call it. A group that is left by one rank is of no use to the others, and not all
    of them notice on their own that a rank is gone: in a ring they have two neighbours.
    """
    breakable.break_off()
    for group in _groups():
        for backend in _backends(group):
            if isinstance(backend, dist.ProcessGroupGloo):
                Gloo(backend).leave("another rank is gone")
            else:
                # A kernel that waits for a peer would never end.
                with contextlib.suppress(RuntimeError):
                    backend.abort()


def abandon() -> None:
    """Be in no process group any more, once its connections are closed.

    The destructor of a group joins its threads, and they may wait for the interpreter, which
    whoever drops the last reference in C++ holds. From Python it does not; and should it wait for
    anything else, it is a thread of its own that does, unless something still refers to the group.
    So one with a collective that Gloo does not end is kept: it would wait for half an hour.
    """
    if not dist.is_initialized():
        return
    gc.collect()  # DDP refers to groups, and lies in cycles
    groups = _groups()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    if breakable.present().abandoned_work:
        _kept.extend(groups)
    Thread(target=groups.clear, name="groups that were left", daemon=True).start()


def _groups() -> list[dist.ProcessGroup]:
    return list(dist.distributed_c10d._world.pg_map)


def _backends(group: dist.ProcessGroup) -> list[Any]:
    found: dict[int, Any] = {}
    for device in group._device_types:
        backend = group._get_backend(device)
        found[id(backend)] = backend
    return list(found.values())
