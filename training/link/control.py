"""The page by which a shim commands its ranks; free of torch."""

import mmap
import os
import struct
import time
from pathlib import Path

from trainhall.training.link.launch import Command
from trainhall.training.link.regular_file import open_regular, read_regular

STUCK_SECONDS = 5.0
"""Shortest time without a step after which a rank leaves its group for a newer one, though no rank
is known to be lost. A step that is cut off is taken again."""

_CONTROL_SIZE = 64
_LISTENED = struct.Struct("@dd")
_LISTENED_AT = 8
_GENERATION = struct.Struct("@I")
_GENERATION_AT = 4
_REQUEST = struct.Struct("@Q")
_REQUEST_AT = 24
_PROFILE_AT = 32


class Control:
    """The page by which ranks are commanded. Reading it takes under a microsecond.

    byte 0       the command; the shim writes it
    byte 1       1: a script asks after every step whether to stop
    byte 2       1: the script knows that it is to stop
    bytes 4-7    the newest generation that there is a group of ranks for; the shim writes it
    bytes 8-23   when a rank here asked last (monotonic), and the longest time between two asks
    bytes 24-31  the newest request for the gradients of a step; the agent writes it
    bytes 32-39  the newest request for a profile, whose file is there; the agent writes it
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._listened_at: float | None = None
        self._longest = 0.0
        if create:
            path.write_bytes(bytes(_CONTROL_SIZE))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _CONTROL_SIZE)

    @property
    def command(self) -> Command:
        return Command(self._page[0])

    def send(self, command: Command) -> None:
        """Raise the command; a lower one than the present is ignored."""
        if command > self._page[0]:
            self._page[0] = command

    @property
    def generation(self) -> int:
        """The newest one whose launch lies in `AttemptFolder.group`; 0: none does."""
        return int(_GENERATION.unpack_from(self._page, _GENERATION_AT)[0])

    def regroup(self, generation: int) -> None:
        """Ask the ranks to continue in a group of this generation."""
        _GENERATION.pack_into(self._page, _GENERATION_AT, generation)

    @property
    def request(self) -> int:
        """Number of the newest request for the gradients of a step; 0: there was none."""
        return int(_REQUEST.unpack_from(self._page, _REQUEST_AT)[0])

    @staticmethod
    def ask(path: Path, request: int) -> None:
        """Ask the ranks for the gradients of a step; asking again with the same number is harmless.

        Raises:
            OSError: no shim has begun there (ENOENT), or the job has replaced the file.
        """
        _write_request(path, request, _REQUEST_AT)

    @property
    def profile(self) -> int:
        """Number of the newest request for a profile; 0: there was none."""
        return int(_REQUEST.unpack_from(self._page, _PROFILE_AT)[0])

    @staticmethod
    def ask_profile(path: Path, number: int) -> None:
        """Ask the ranks for a profile whose request is in `AttemptFolder.profile`; as of `ask`."""
        _write_request(path, number, _PROFILE_AT)

    @staticmethod
    def is_listened(path: Path) -> bool:
        """Return whether a rank of a script takes part in agreed stops: it need not be signalled to
        pause."""
        try:
            return read_regular(path, _CONTROL_SIZE)[1] != 0
        except (OSError, IndexError):  # no shim has begun, or the job has replaced it
            return False

    def listen(self) -> None:
        """Let the shim know that this script asks whether to stop, after every step."""
        now = time.monotonic()
        if self._listened_at is not None:
            self._longest = max(self._longest, now - self._listened_at)
        self._listened_at = now
        # Another rank may write at the same time: what is lost then comes with the next step.
        longest = max(self._longest, self.listened[1])
        _LISTENED.pack_into(self._page, _LISTENED_AT, now, longest)
        self._page[1] = 1

    @property
    def listened(self) -> tuple[float, float]:
        """When a rank here asked last (monotonic), and the longest time between two asks."""
        at, longest = _LISTENED.unpack_from(self._page, _LISTENED_AT)
        return at, longest

    def answer(self) -> None:
        """Let the shim know that this script knows that it is to stop, and that it may be
        saving."""
        self._page[2] = 1

    @property
    def is_answered(self) -> bool:
        return self._page[2] != 0

    def close(self) -> None:
        self._page.close()


def _write_request(path: Path, number: int, at: int) -> None:
    fd = open_regular(path, os.O_WRONLY)
    try:
        os.pwrite(fd, _REQUEST.pack(number), at)
    finally:
        os.close(fd)
