"""Data workers: processes that read batches ahead of the rank and hand them over in shared memory.

They are forked from the rank, each knows the order of requests, and worker w of W reads the
requests w, w + W, w + 2W …, at most `prefetch` of them ahead. A batch is pickled, but for the
numbers of its tensors and arrays: these are written into a slot, memory without a name that both
processes map; the pickle goes over a socket pair. When the last tensor on a slot is gone, wherever
it was kept, the slot is free again.

Compared with PyTorch's own workers: slots are used again instead of being made for each batch,
nothing of them has a name in a file system (so nothing is left when a rank is killed, and a
container's small /dev/shm is no limit), and a worker ends at once with its rank.
"""

import contextlib
import ctypes
import io
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainhall.training.data.batch_reader import Request
from trainhall.training.tasks.base import BadDataError, TaskUnavailableError

AVAILABLE = sys.platform == "linux"
"""Elsewhere forking a process that has used its libraries is not safe."""

_PR_SET_PDEATHSIG = 1
_RAISED_AS_IS = (BadDataError, TaskUnavailableError)
"""Exceptions that say all there is to say; they are raised in the rank as they were here."""
_ALIGNMENT = 64
_SPARE = 1.125
"""A new slot has room for a somewhat larger batch."""


class DataWorkerDiedError(RuntimeError):
    """A data worker ended without a word."""

    def __init__(self, message: str, ended_by: int | None = None) -> None:
        super().__init__(message)
        self.ended_by = ended_by
        """Signal that ended it; None: it left by itself."""


class DataReadError(RuntimeError):
    """A data worker could not read a batch; the message says what happened there."""


@dataclass(frozen=True)
class _Read:
    """A batch whose numbers lie in a slot; `new_size` of a slot that follows, or 0."""

    pickled: bytes
    spans: list[tuple[int, int]]
    """The beginning and the end in the slot of each buffer that the pickle leaves out."""
    slot: int
    new_size: int


class Prefetcher:
    """The batches of `requests`, in their order, read by `workers` processes.

    Args:
        requests: iterated in every worker from its beginning; may be endless.
        describe: what to say of an exception, called in the worker.
    """

    def __init__(
        self,
        read: Callable[[Request], Any],
        requests: Iterable[Request],
        *,
        workers: int,
        prefetch: int,
        describe: Callable[[BaseException], str] = str,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._workers: list[_Worker] = []
        self._next = 0
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(theirs, os.getpid(), read, requests, number, workers, describe),
                name=f"data worker {number}",
                daemon=True,
            )
            with warnings.catch_warnings():
                # Python 3.12 warns of any fork beside threads. The worker touches none of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._workers.append(_Worker(number, process, ours))
        for _ in range(prefetch):
            for worker in self._workers:
                worker.ask()

    def next(self) -> Any:
        """Return the next batch.

        Raises:
            DataReadError, BadDataError, TaskUnavailableError: it could not be read.
            DataWorkerDiedError: its worker is gone.
        """
        worker = self._workers[self._next % len(self._workers)]
        self._next += 1
        batch = worker.take()
        worker.ask()
        return batch

    def close(self) -> None:
        """End the workers; batches that were handed out stay."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []


@dataclass
class _Worker:
    """The rank's side of a worker."""

    number: int
    process: BaseProcess
    connection: Connection
    slots: dict[int, mmap.mmap] = field(default_factory=dict)
    released: deque[int] = field(default_factory=deque)
    """Slots that nothing uses any more; any thread may add to it."""

    def ask(self) -> None:
        """Ask for one more batch, and say which slots are free."""
        free = [self.released.popleft() for _ in range(len(self.released))]
        # A worker that is gone is noticed where its batch is missed.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(free)

    def take(self) -> Any:
        wait([self.connection, self.process.sentinel])
        try:
            if not self.connection.poll():
                raise EOFError
            reply: _Read | Exception = self.connection.recv()
            if isinstance(reply, Exception):
                raise reply
            if reply.new_size:
                handle = recv_handle(self.connection)
                self.slots[reply.slot] = mmap.mmap(handle, reply.new_size)
                os.close(handle)
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        return self._restored(reply)

    def _restored(self, reply: _Read) -> Any:
        """Return the batch with its tensors on the slot."""
        if not reply.spans:
            return pickle.loads(reply.pickled)
        memory = np.frombuffer(self.slots[reply.slot], dtype=np.uint8)
        finalizer = weakref.finalize(memory, self.released.append, reply.slot)
        finalizer.atexit = False
        return pickle.loads(reply.pickled, buffers=[memory[a:b] for a, b in reply.spans])

    def _died(self) -> DataWorkerDiedError:
        self.process.join(timeout=5)
        code = self.process.exitcode
        how, ended_by = f"ended with exit code {code}", None
        if code is not None and code < 0:
            ended_by = signal.Signals(-code)
            how = f"was ended by {ended_by.name}"
        if ended_by is signal.SIGKILL:
            how += (
                "; if the host is short of memory, lower training.data_workers or "
                "training.data_prefetch"
            )
        who = f"data worker {self.number} (process {self.process.pid})"
        return DataWorkerDiedError(f"{who} {how}", ended_by)


def _tensor(buffer: Any, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.from_numpy(buffer).view(dtype).view(shape)


# -- in the worker --------------------------------------------------------------------------------


def _work(
    connection: Connection,
    parent: int,
    read: Callable[[Request], Any],
    requests: Iterable[Request],
    number: int,
    workers: int,
    describe: Callable[[BaseException], str],
) -> None:
    """Serve a worker's life long: a batch for each message that asks for one."""
    _die_with(parent)
    # One thread each: the workers share the cores, and a fork loses the threads of a pool.
    torch.set_num_threads(1)
    slots = _Slots()
    for position, request in enumerate(requests):
        if position % workers != number:
            continue
        try:
            slots.free += connection.recv()
        except (EOFError, ConnectionResetError):
            return
        handle: int | None = None
        reply: _Read | BaseException
        try:
            reply, handle = slots.put(read(request))
        except (Exception, SystemExit) as error:
            reply = error if type(error) in _RAISED_AS_IS else DataReadError(describe(error))
            reply.add_note(f"In the data worker:\n{traceback.format_exc()}")
        try:
            connection.send(reply)
            if handle is not None:
                send_handle(connection, handle, parent)
                os.close(handle)
        except (BrokenPipeError, ConnectionResetError):
            return
    # Whoever asks for more gets the end of the connection; until then what was sent must stay.
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            connection.recv_bytes()


class _Slots:
    """The worker's slots."""

    def __init__(self) -> None:
        self._memory: list[mmap.mmap] = []
        self.free: list[int] = []

    def put(self, batch: Any) -> tuple[_Read, int | None]:
        """Write a batch's numbers into a slot; the descriptor of the slot where it is new."""
        pickled, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        _Pickler(pickled, protocol=5, buffer_callback=buffers.append).dump(batch)
        spans, end = [], 0
        for buffer in buffers:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = start + buffer.raw().nbytes
            spans.append((start, end))
        if not spans:
            return _Read(pickled.getvalue(), [], -1, 0), None
        slot, handle = self._slot(end)
        memory = memoryview(self._memory[slot])
        for (start, end), buffer in zip(spans, buffers, strict=True):
            memory[start:end] = buffer.raw()
        new_size = 0 if handle is None else len(memory)
        return _Read(pickled.getvalue(), spans, slot, new_size), handle

    def _slot(self, size: int) -> tuple[int, int | None]:
        for slot in self.free:
            if len(self._memory[slot]) >= size:
                self.free.remove(slot)
                return slot, None
        handle = os.memfd_create("trainhall-batch")
        capacity = int(size * _SPARE) + _ALIGNMENT
        os.ftruncate(handle, capacity)
        self._memory.append(mmap.mmap(handle, capacity))
        return len(self._memory) - 1, handle


class _Pickler(pickle.Pickler):
    """Leaves out the numbers of plain tensors in host memory, as numpy's arrays do themselves."""

    def reducer_override(self, value: Any) -> Any:
        plain = (
            type(value) is Tensor
            and value.device.type == "cpu"
            and value.layout is torch.strided
            and not value.requires_grad
            and not value.is_quantized
            and value.numel() > 0
        )
        if not plain:
            return NotImplemented
        numbers = value.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(numbers), value.dtype, value.shape)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the rank ends in any way.

    `ps` shows it under a name of its own.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    name = Path("/proc/self/comm")
    with contextlib.suppress(OSError):
        name.write_text(name.read_text(encoding="utf-8").replace("rank", "data", 1), "utf-8")
