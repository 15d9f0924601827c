"""Work that is shared among copies of this process, which have all that it has prepared."""

import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO, TypeVar

import torch

T = TypeVar("T")

_INDEX = struct.Struct("@i")


def in_copies(task: Callable[[int], T], count: int, copies: int) -> list[T]:
    """`task(0)` … `task(count - 1)`, each taken by whichever copy is free.

    A copy hands back what it has made by pickle, and nothing else of what it does is seen here.
    What a copy could not do (it was killed, the task raised) is done here, one after another.

    Args:
        count: at most a few thousand: they wait in a pipe.
        copies: of this process, at most; no more than it has cores and there is work. Below two,
            or where a process cannot be copied safely (not Linux, or CUDA is in use), it does all
            by itself.
    """
    done: dict[int, T] = {}
    if sys.platform == "linux":
        copies = min(copies, count, len(os.sched_getaffinity(0)))
    if copies > 1 and sys.platform == "linux" and not torch.cuda.is_initialized():
        waiting, filling = os.pipe()
        os.write(filling, b"".join(map(_INDEX.pack, range(count))))
        os.close(filling)
        started = [_start(task, waiting) for _ in range(copies)]
        os.close(waiting)
        for pid, results in started:
            with results:
                data = results.read()
            if os.waitpid(pid, 0)[1] == 0:
                done.update(pickle.loads(data))
    return [done[index] if index in done else task(index) for index in range(count)]


def _start(task: Callable[[int], T], waiting: int) -> tuple[int, BinaryIO]:
    """Start a copy that takes waiting items; returns its pid, and the pipe for its results."""
    theirs, ours = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(ours)
        return pid, os.fdopen(theirs, "rb")
    code = 1
    try:
        os.close(theirs)
        torch.set_num_threads(1)  # OpenMP's own threads were not copied, and would be waited for
        found: dict[int, T] = {}
        while index := os.read(waiting, _INDEX.size):
            number = _INDEX.unpack(index)[0]
            found[number] = task(number)
        with os.fdopen(ours, "wb") as results:
            pickle.dump(found, results)
        code = 0
    finally:
        os._exit(code)  # whatever it was: who waits does the rest, and says what there is to say
