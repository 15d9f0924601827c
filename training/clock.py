"""Where the time of a step goes."""

from enum import IntEnum
from itertools import pairwise
from time import perf_counter
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch


class Phase(IntEnum):
    """The parts of a step, each the column of its own in a clock's table."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    COMMUNICATION = 3
    """Waiting for gradients of other ranks after the backward pass itself had ended."""
    OPTIMIZER = 4


PHASE_NAMES = tuple(f"{phase.name.lower()}_seconds" for phase in Phase)

Seconds = npt.NDArray[np.float64]


class StepClock(Protocol):
    def start(self) -> None:
        """A step begins."""

    def mark(self, phase: Phase) -> None:
        """What ran since the last mark was `phase`; a phase may be marked several times."""

    def finish(self) -> None:
        """The step has ended."""

    def take(self) -> Seconds:
        """Seconds by [step, phase] of the steps since the last call."""


class HostClock:
    """Measures work that is done when its call returns."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []
        self._row: list[float] = []
        self._last = 0.0

    def start(self) -> None:
        self._row = [0.0] * len(Phase)
        self._last = perf_counter()

    def mark(self, phase: Phase) -> None:
        now = perf_counter()
        self._row[phase] += now - self._last
        self._last = now

    def finish(self) -> None:
        self._rows.append(self._row)

    def take(self) -> Seconds:
        rows, self._rows = self._rows, []
        return np.asarray(rows, dtype=np.float64).reshape(-1, len(Phase))


class CudaClock:
    """Measures a GPU's work on the GPU, by events in its stream; only `take` waits for it."""

    def __init__(self) -> None:
        self._steps: list[list[tuple[Phase | None, torch.cuda.Event]]] = []
        self._marks: list[tuple[Phase | None, torch.cuda.Event]] = []

    def start(self) -> None:
        self._marks = []
        self._record(None)

    def mark(self, phase: Phase) -> None:
        self._record(phase)

    def finish(self) -> None:
        self._steps.append(self._marks)

    def take(self) -> Seconds:
        steps, self._steps = self._steps, []
        table = np.zeros((len(steps), len(Phase)))
        torch.cuda.synchronize()
        for row, marks in zip(table, steps, strict=True):
            for (_, before), (phase, event) in pairwise(marks):
                if phase is not None:
                    row[phase] += before.elapsed_time(event) / 1000
        return table

    def _record(self, phase: Phase | None) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((phase, event))


class NoClock:
    """For those who do not look at it."""

    def start(self) -> None:
        pass

    def mark(self, phase: Phase) -> None:
        pass

    def finish(self) -> None:
        pass

    def take(self) -> Seconds:
        return np.empty((0, len(Phase)))


def clock_for(device: torch.device) -> StepClock:
    return CudaClock() if device.type == "cuda" else HostClock()
