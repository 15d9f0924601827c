"""Stop requests, as long as there are no other ranks to agree with."""

from typing import Protocol

from trainhall.training.link.control import Control
from trainhall.training.link.launch import Command


class Stopping(Protocol):
    command: Command
    """The decision that all ranks have agreed on."""

    def ask(self) -> bool:
        """Return whether to stop here; every rank asks equally often."""


class Never:
    """Nobody outside can ask this process to stop."""

    command = Command.RUN

    def ask(self) -> bool:
        return False


class Alone:
    """One rank agrees with itself."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.command = Command.RUN

    def ask(self) -> bool:
        self._control.listen()
        self.command = self._control.command
        return self.command is not Command.RUN
