"""A recording of what this process does, by `torch.profiler`, and its export to a file.

What the profiler has collected can be stopped in this process alone; to write it takes far longer.
That is done by a fork, which has all of it in its memory, while training continues.
"""

import gzip
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from trainhall.training.process.forked import close_files

MAX_BYTES = 2**30
"""Largest trace, as JSON before it is compressed: a browser opens no larger one."""
_EXIT_FAILED = 1
_EXIT_INCOMPLETE = 2
_NICE = 10
_COMPRESSION = 3
_BLOCK = 2**20


class TraceError(Exception):
    """A trace was not written; the message says why."""


class Recording:
    """Records from now on.

    Args:
        stacks: record the Python calls, too.
        memory: record allocations of tensors, too.

    Raises:
        RuntimeError: the script runs a profiler of its own.
    """

    def __init__(self, *, stacks: bool, memory: bool) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            with_stack=stacks,
            profile_memory=memory,
            experimental_config=None if stacks else _trace_only(),
        )
        self._profiler.start()

    def stop(self) -> None:
        """End the recording; waits for the GPU."""
        self._profiler.stop()

    def export(self, target: Path, scratch: Path) -> "Export":
        """Begin to write what was recorded as a Chrome trace, compressed; returns at once.

        Args:
            target: name that the trace gets when it is whole.
            scratch: folder for it until then, on the same disk.

        Raises:
            OSError: no process can be started.
        """
        # What is buffered would be written by both processes.
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._export_and_exit(target, scratch)
        return Export(pid)

    def _export_and_exit(self, target: Path, scratch: Path) -> None:
        code = _EXIT_FAILED
        raw, packed = scratch / "trace-raw", scratch / "trace-packed"
        try:
            # Peers must see it at once if this process's parent dies.
            close_files()
            os.nice(_NICE)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
            self._profiler.export_chrome_trace(str(raw))
            if not _is_whole(raw):
                code = _EXIT_INCOMPLETE
            else:
                with raw.open("rb") as source, gzip.open(packed, "wb", _COMPRESSION) as archive:
                    shutil.copyfileobj(source, archive, _BLOCK)
                target.parent.mkdir(parents=True, exist_ok=True)
                packed.replace(target)
                code = 0
        finally:
            try:
                for path in (raw, packed):
                    path.unlink(missing_ok=True)
            finally:  # whatever happens, this is no second rank
                os._exit(code)


class Export:
    """The process that writes a trace."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wait(self) -> None:
        """Wait for its end.

        Raises:
            TraceError: the trace was not written.
        """
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:
            raise TraceError("the script waits for all its processes, this one included") from None
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXFSZ:
            raise TraceError(
                f"the trace is larger than {MAX_BYTES >> 20} MiB; profile fewer steps, or without "
                "stacks and memory"
            )
        if code == _EXIT_INCOMPLETE:
            raise TraceError("the trace could not be written whole; is the disk full?")
        if code != 0:
            raise TraceError(f"the process that writes the trace ended with exit code {code}")


def _trace_only() -> Any:
    """Return options that leave out what an export of the trace does not need."""
    try:
        return torch.profiler._ExperimentalConfig(trace_only=True)
    except TypeError:  # torch before 2.13
        return None


def _is_whole(path: Path) -> bool:
    """Return whether a JSON file has its end: the profiler ignores a full disk."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 16))
        return file.read().rstrip().endswith(b"}")
