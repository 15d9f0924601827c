"""Output of ranks that have secrets: through a pipe each, so that no file ever holds a value.

The shim, which has the values, reads the pipes, and appends what is left to the ranks' files.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from trainhall.training.link.secrets.masking import MaskedStream, Masker

_READ_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
"""Ranks wait for the shim once a pipe is full: so much fits while it does something else."""


class MaskedOutput:
    """The output files of all ranks of a shim."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._open: dict[int, tuple[int, MaskedStream]] = {}
        """By the end of a pipe that is read: the file, and the filter between them."""

    @property
    def pipes(self) -> list[int]:
        """Return the descriptors to read from."""
        return list(self._open)

    def add(self, path: Path) -> int:
        """Return a new descriptor for a rank to write to; its process alone shall keep it open.

        Raises:
            OSError: there is no room for the file, or too many are open.
        """
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            ours, theirs = os.pipe()
        except OSError:
            os.close(file)
            raise
        os.set_blocking(ours, False)
        with contextlib.suppress(OSError, AttributeError):  # not on every system
            fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._open[ours] = (file, self._masker.stream())
        return theirs

    def read(self, pipe: int) -> bool:
        """Pass on what a pipe holds; return whether there may be more."""
        file, stream = self._open[pipe]
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return False
        _append(file, stream.feed(data) if data else stream.end())
        if not data:
            del self._open[pipe]
            os.close(pipe)
            os.close(file)
        return bool(data)

    def drain(self) -> None:
        """Pass on all that ranks have written so far."""
        for pipe in self.pipes:
            while self.read(pipe):
                pass

    def close(self) -> None:
        """Pass on the rest. No rank is left."""
        self.drain()
        for pipe, (file, stream) in self._open.items():
            _append(file, stream.end())
            os.close(pipe)
            os.close(file)
        self._open.clear()


def _append(file: int, data: bytes) -> None:
    view = memoryview(data)
    # On a full disk the rank would have lost it, too, and must not wait for room.
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(file, view) :]
