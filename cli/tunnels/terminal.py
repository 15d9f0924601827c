"""The user's terminal, while a command of `exec` has it."""

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

STDIN = 0
_ESCAPE = b"~."
_LINE_ENDS = b"\r\n"


def is_terminal() -> bool:
    """Return whether what the user types, and reads, is a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size() -> dict[str, int]:
    """Return rows and columns of the terminal."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return {"rows": max(rows, 1), "columns": max(columns, 1)}


def described() -> dict[str, Any]:
    """Return the terminal as the start of `exec` describes it."""
    return {**size(), "term": os.environ.get("TERM") or "xterm"}


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Pass every key on, Ctrl-C too, until the block ends."""
    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


class Escape:
    """Finds `~.` at the beginning of a line, by which users leave a session that hangs."""

    def __init__(self) -> None:
        self._matched = 0
        self._at_line_start = True

    def is_in(self, data: bytes) -> bool:
        """Return whether it is typed with these bytes, at the latest."""
        for byte in data:
            if self._at_line_start and byte == _ESCAPE[self._matched]:
                self._matched += 1
                if self._matched == len(_ESCAPE):
                    return True
                continue
            self._matched = 0
            self._at_line_start = byte in _LINE_ENDS
        return False
