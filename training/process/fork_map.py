"""Work that is shared among copies of this process, which have all that it has prepared."""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_task: Callable[[int], Any]
"""The task of this process, which is a copy."""


def in_copies(task: Callable[[int], T], count: int, copies: int) -> list[T]:
    """Return `task(0)` … `task(count - 1)`, each run by the next copy that is free.

    Results are pickled; nothing else that a copy does has an effect here. Tasks that failed in a
    copy (it was killed, or the task raised) run here, one after another.

    Args:
        copies: of this process, at most; no more than it has cores and there is work. Below two,
            or where a process cannot be copied safely (not Linux, or CUDA is in use), it does all
            by itself.
    """
    if sys.platform == "linux":
        copies = min(copies, count, len(os.sched_getaffinity(0)))
    if copies < 2 or sys.platform != "linux" or torch.cuda.is_initialized():
        return [task(index) for index in range(count)]
    fork = multiprocessing.get_context("fork")
    futures: dict[int, Future[T]] = {}
    with (
        ProcessPoolExecutor(copies, fork, initializer=_begin, initargs=(task,)) as pool,
        contextlib.suppress(BrokenProcessPool),  # a copy was killed: what it leaves is done here
    ):
        for index in range(count):
            futures[index] = pool.submit(_do, index)
    done = {i: future.result() for i, future in futures.items() if future.exception() is None}
    return [done[index] if index in done else task(index) for index in range(count)]


def _begin(task: Callable[[int], Any]) -> None:
    global _task
    _task = task
    torch.set_num_threads(1)  # OpenMP's own threads were not copied, and would be waited for


def _do(index: int) -> Any:
    return _task(index)
