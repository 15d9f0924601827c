"""Measures the phases of a step."""

import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch


class Phase(IntEnum):
    """The parts of a step, each the column of its own in a clock's table."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    COMMUNICATION = 3
    """Waiting for other ranks, within a pass or after it."""
    OPTIMIZER = 4


PHASE_NAMES = tuple(f"{phase.name.lower()}_seconds" for phase in Phase)
HIDDEN = "communication_hidden_seconds"
"""The time in which something was on its way to other ranks while this one computed; NaN in steps
in which that was not measured."""
COMPRESSION = "compression_seconds"
"""The time in which gradients were compressed and decompressed, whatever else ran meanwhile."""

Seconds = npt.NDArray[np.float64]
Span = tuple[float, float]
"""A beginning and an end."""


class Times(NamedTuple):
    """Seconds of some steps."""

    phases: Seconds
    """[step, phase]; the phases of a step are all of it."""
    hidden: Seconds
    """[step]: `HIDDEN`, which is a part of other phases."""
    compression: Seconds
    """[step]: `COMPRESSION`, likewise."""


class StepClock:
    """Clock of a step's phases. By itself it measures nothing, for those who read no times."""

    def start(self) -> None:
        """Note that a step begins."""

    def mark(self, phase: Phase) -> None:
        """Count the time since the last mark as `phase`; a phase may be marked several times."""

    def now(self) -> Any:
        """Return the current moment (of the stream, on a GPU), for `sent`. From any thread."""

    def sent(self, begun: Any, ended: Any) -> None:
        """Add the time between two moments in which something was sent. From any thread."""

    def sending_unmeasured(self) -> None:
        """Note that `sent` is not called in this step."""

    def waited(self, begun: Any, ended: Any) -> None:
        """Count the time between two moments since the last mark, in which this rank waited for
        others, as communication, whatever phase is marked next."""

    def compressed(self, begun: Any, ended: Any) -> None:
        """Add what a compression has computed between two moments of this step. From any thread."""

    def finish(self) -> None:
        """Note that the step has ended."""

    def take(self) -> Times:
        """Return and forget the times of the steps since the last call: none, by itself."""
        return Times(np.empty((0, len(Phase))), np.empty(0), np.empty(0))


class HostClock(StepClock):
    """Measures work that is done when its call returns.

    Args:
        passed: called with every mark.
    """

    def __init__(self, passed: Callable[[int], None] = lambda _: None) -> None:
        self._passed = passed
        self._rows: list[list[float]] = []
        self._hidden: list[float] = []
        self._compression: list[float] = []
        self._row: list[float] = []
        self._sent: list[Span] = []
        self._sending_unmeasured = False
        self._computed: list[Span] = []
        self._waits: list[Span] = []
        self._compressed = self._waited = self._last = 0.0

    def start(self) -> None:
        self._row = [0.0] * len(Phase)
        self._sent, self._computed, self._waits = [], [], []
        self._sending_unmeasured = False
        self._compressed = self._waited = 0.0
        self._last = perf_counter()

    def mark(self, phase: Phase) -> None:
        self._passed(phase)
        now = perf_counter()
        self._row[phase] += now - self._last - self._waited
        self._row[Phase.COMMUNICATION] += self._waited
        if phase is Phase.FORWARD or phase is Phase.BACKWARD:
            self._computed.append((self._last, now))
        self._last, self._waited = now, 0.0

    def now(self) -> float:
        return perf_counter()

    def sent(self, begun: float, ended: float) -> None:
        self._sent.append((begun, ended))

    def sending_unmeasured(self) -> None:
        self._sending_unmeasured = True

    def waited(self, begun: float, ended: float) -> None:
        self._waited += ended - begun
        self._waits.append((begun, ended))

    def compressed(self, begun: float, ended: float) -> None:
        self._compressed += ended - begun

    def finish(self) -> None:
        self._rows.append(self._row)
        self._compression.append(self._compressed)
        self._hidden.append(math.nan if self._sending_unmeasured else self._hidden_seconds())

    def _hidden_seconds(self) -> float:
        if not self._sent:
            return 0.0
        waited = [wait for wait in self._waits if any(a <= wait[0] < b for a, b in self._computed)]
        return overlap(self._sent, self._computed) - overlap(self._sent, waited)

    def take(self) -> Times:
        rows, self._rows = self._rows, []
        hidden, self._hidden = self._hidden, []
        compression, self._compression = self._compression, []
        return Times(
            np.asarray(rows, dtype=np.float64).reshape(-1, len(Phase)),
            np.asarray(hidden, dtype=np.float64),
            np.asarray(compression, dtype=np.float64),
        )


_Marks = list[tuple[Phase | None, torch.cuda.Event]]
_Spans = list[tuple[torch.cuda.Event, torch.cuda.Event]]
_Waits = list[tuple[int, torch.cuda.Event, torch.cuda.Event]]
"""Each with the index of the mark that comes next."""


class CudaClock(StepClock):
    """Measures a GPU's work on the GPU, by events in its stream; only `take` waits for it. No
    strategy leaves what it sends unmeasured there.

    Args:
        passed: called with every mark, when the work before it was given to the GPU.
    """

    def __init__(self, passed: Callable[[int], None] = lambda _: None) -> None:
        self._passed = passed
        self._steps: list[tuple[_Marks, _Spans, _Waits, _Spans]] = []
        self._marks: _Marks = []
        self._waits: _Waits = []
        self._sent: _Spans = []
        self._compressed: _Spans = []

    def start(self) -> None:
        self._marks, self._sent, self._waits, self._compressed = [], [], [], []
        self._marks.append((None, self.now()))

    def mark(self, phase: Phase) -> None:
        self._passed(phase)
        self._marks.append((phase, self.now()))

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def sent(self, begun: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._sent.append((begun, ended))

    def waited(self, begun: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._waits.append((len(self._marks), begun, ended))

    def compressed(self, begun: torch.cuda.Event, ended: torch.cuda.Event) -> None:
        self._compressed.append((begun, ended))

    def finish(self) -> None:
        self._steps.append((self._marks, self._sent, self._waits, self._compressed))

    def take(self) -> Times:
        steps, self._steps = self._steps, []
        table, hidden = np.zeros((len(steps), len(Phase))), np.zeros(len(steps))
        compression = np.zeros(len(steps))
        torch.cuda.synchronize()
        for i, (marks, sent, waits, compressed) in enumerate(steps):
            for (_, before), (phase, event) in pairwise(marks):
                if phase is not None:
                    table[i, phase] += before.elapsed_time(event) / 1000
            for index, begun, ended in waits:
                phase, _ = marks[index] if index < len(marks) else (None, None)
                if phase is not None:  # evaluation, after the last mark, is no part of the step
                    seconds = begun.elapsed_time(ended) / 1000
                    table[i, phase] -= seconds
                    table[i, Phase.COMMUNICATION] += seconds
            if sent:
                (_, start), *_ = marks
                ends = (event for phase, event in reversed(marks) if phase is Phase.BACKWARD)
                times = [tuple(start.elapsed_time(each) / 1000 for each in pair) for pair in sent]
                hidden[i] = covered(times, start.elapsed_time(next(ends)) / 1000)
            compression[i] = sum(a.elapsed_time(b) / 1000 for a, b in compressed)
        return Times(table, hidden, compression)


def covered(spans: Iterable[Span], end: float) -> float:
    """Return the part of the time before `end` that lies within one span or several."""
    total, reached = 0.0, -math.inf
    for first, last in sorted(spans):
        last = min(last, end)
        total += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    return total


def overlap(spans: Iterable[Span], times: Iterable[Span]) -> float:
    """Return the part of some disjoint times that lies within one span or several."""
    spans = sorted(spans)
    return sum(covered(spans, ended) - covered(spans, begun) for begun, ended in times)


def clock_for(device: torch.device, passed: Callable[[int], None]) -> StepClock:
    return CudaClock(passed) if device.type == "cuda" else HostClock(passed)
