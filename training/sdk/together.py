"""The ranks of a script as a group: how they join, and how they agree to stop."""

import contextlib
import ctypes
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from trainhall.distributed import process_group
from trainhall.training.link.launch import Command
from trainhall.training.process.device import own_gpu
from trainhall.training.sync.step_sync import StepSync


def choose_device(local_rank: int) -> torch.device:
    """Return this rank's GPU, if there is one, made the current one; else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return own_gpu(local_rank)


def join(device: torch.device, master: str) -> None:
    """Join the default process group, unless the script did."""
    if dist.is_initialized():
        return
    process_group.choose_interface(master)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")


def end_with_groups() -> None:
    """Let this process end as long as threads of its process groups are at work.

    A thread of Gloo's gives a finished collective's tensors back after the result is out, and may
    need Python for that. When Python is ending that ends the thread, within C++ that must not be
    left so, and the process aborts: `terminate called without an active exception`. Such a thread
    halts instead, as it does from Python 3.14 on. Nor do destructors of groups run, which wait for
    their threads.
    """
    if not dist.is_initialized():
        return
    for group in _groups():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        # std::set_terminate of the C++ library that torch uses, whichever it is.
        ctypes.CDLL(torch._C.__file__)._ZSt13set_terminatePFvvE(libc.pause)
    with contextlib.suppress(AttributeError):
        # Nor may libraries be torn down under the groups' threads. glibc hands the exit code over;
        # what C has in its buffers is written before.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


def _groups() -> set[dist.ProcessGroup]:
    """Return every group of this process. torch has no public list of those that scripts made."""
    known = getattr(getattr(dist.distributed_c10d, "_world", None), "pg_map", ())
    return {dist.group.WORLD, *known}


def host_group(world_size: int) -> Any:
    """Return a group of all ranks for tensors in host memory; None for one rank. A collective.

    Raises:
        RuntimeError: there are several ranks, and they have not joined.
    """
    if world_size == 1:
        return None
    if not dist.is_initialized():
        raise RuntimeError(
            f"the {world_size} ranks must meet first: let trainhall.init() join the process group, "
            "or call torch.distributed.init_process_group()"
        )
    if "cpu:" in str(dist.get_backend_config()) or dist.get_backend() == "gloo":
        return dist.group.WORLD
    return dist.new_group(backend="gloo")


def barrier(group: Any) -> None:
    """Wait until all ranks are here: none leaves while another still waits for its numbers."""
    if group is not None:
        dist.barrier(group)


class Agreement:
    """All ranks agree to stop at the same step, by the step sync: about four exchanges a second.

    Args:
        every_step: exchange after every step, since the ranks may not know its number: some scripts
            report on rank 0 alone.
    """

    def __init__(self, group: dist.ProcessGroup, *, every_step: bool = False) -> None:
        self._step_sync = StepSync(group)
        self._every_step = every_step
        self._steps = 0
        self._seconds: list[float] = []
        self._asked_at = time.monotonic()
        self._command = Command.RUN

    def reach(self, command: Command, profile: int = 0) -> tuple[Command, int]:
        """Return the highest command of any rank, `RUN` until all know it; and the profile that all
        ranks begin now, or 0. Every rank calls it equally often.

        Args:
            command: this rank's own.
            profile: the request that it has, and has not begun; 0: there is none.
        """
        agreed = 0
        now = time.monotonic()
        self._steps += 1
        self._seconds.append(now - self._asked_at)
        self._asked_at = now
        due = self._every_step or self._step_sync.due(self._steps)
        if self._command is Command.RUN and due:
            result = self._step_sync.exchange(
                self._steps,
                np.asarray(self._seconds).reshape(-1, 1),
                seconds=0,
                command=command,
                save=False,
                peak_memory_bytes=0.0,
                profile=profile,
            )
            self._seconds = []
            self._command, agreed = result.command, result.profile
            self._asked_at = time.monotonic()
        return self._command, agreed
