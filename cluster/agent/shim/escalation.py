"""Escalation: the signals that end the remaining ranks, and when each is due."""

import math
import signal
import time

from trainhall.training.link.control import Control

UNANSWERED_SECONDS = 60.0
"""Time after which a pausing script that does not ask whether to stop gets SIGTERM; longer if
its steps are long."""
UNANSWERED_STEPS = 5
"""The same in longest times between two asks so far."""
SAVING_SECONDS = 1800.0
"""Time limit for a pausing script to save: as long as its ranks wait for each other."""


class Escalation:
    """SIGTERM, then SIGKILL, each at its time (monotonic)."""

    def __init__(self) -> None:
        self._plan: list[tuple[float, signal.Signals]] = []

    @property
    def due(self) -> float:
        """Time (monotonic) of the next signal; infinite: none is due."""
        return self._plan[0][0] if self._plan else math.inf

    def schedule(self, wait: float, grace: float) -> None:
        """Plan SIGTERM after `wait` seconds and SIGKILL `grace` seconds later.

        A second reason to end never puts off what the first one brings.
        """
        now = time.monotonic()
        plan = [(now + wait, signal.SIGTERM), (now + wait + grace, signal.SIGKILL)]
        if not self._plan or self._plan[-1][0] > plan[-1][0]:
            self._plan = plan

    def take_due(self) -> list[signal.Signals]:
        """Remove the signals whose time has come from the plan, and return them."""
        taken = []
        while self.due <= time.monotonic():
            taken.append(self._plan.pop(0)[1])
        return taken


class ScriptPause:
    """A script that was asked to pause, whose ranks agree on the step where they end."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._since = time.monotonic()

    @property
    def due(self) -> float:
        """Time (monotonic) at which the script gets SIGTERM after all."""
        asked_at, longest = self._control.listened
        patience = max(UNANSWERED_SECONDS, UNANSWERED_STEPS * longest)
        seconds = SAVING_SECONDS if self._control.is_answered else patience
        return max(self._since, asked_at) + seconds
