"""Metrics on their way out of a script: to the attempt's spool, or to the terminal.

Nothing here waits in the caller: not for a GPU, whose numbers are read by the thread that writes,
and not for a disk.
"""

import math
import numbers
import operator
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from trainhall.training.event_log import EventLogger
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.spool import MetricSpool

log = EventLogger(__name__)

FLUSH_SECONDS = 0.25
TERMINAL_SECONDS = 1.0
MAX_NAME = 128
MAX_NAMES = 1000
MAX_STEP = 2**62
MAX_WAITING = 1_000_000
"""Points that wait while they cannot be written; the oldest give way."""
_ROWS = 500
"""Points of one table: with `MAX_NAMES` names they take half of the largest frame."""


class Output(Protocol):
    """The destination of points."""

    def take(self, step: int, values: Mapping[str, Any]) -> None:
        """Take one step's checked values: numbers, or scalar tensors on a GPU."""

    def flush(self) -> None:
        """Let nothing wait any longer."""


class Reporter:
    """Checks what is reported and keeps count of steps."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._names: set[str] = set()
        self.step = 0
        """The newest step that was reported."""
        self.last: dict[str, Any] = {}
        """The newest value of every name."""

    def report(self, values: Mapping[str, Any], step: int | None) -> None:
        """Note values of a step; without one, of the step after the last. There may be no values.

        Raises:
            TypeError, ValueError: a name or a value is none; nothing of the call is noted.
        """
        at = self.step + 1 if step is None else checked_step(step)
        checked = {_checked_name(name): _checked(name, value) for name, value in values.items()}
        if len(self._names | checked.keys()) > MAX_NAMES:
            raise ValueError(
                f"more than {MAX_NAMES} different metrics; a name is that of a curve, and what "
                "changes from step to step belongs into step= or the value"
            )
        if checked or step is not None:
            self.step = max(self.step, at)
        if checked:
            self._names |= checked.keys()
            self.last |= checked
            self._output.take(at, checked)

    def finite(self) -> dict[str, float]:
        """Return the newest values as a checkpoint keeps them. Waits for a GPU."""
        numbers_ = {name: float(value) for name, value in self.last.items()}
        return {name: value for name, value in numbers_.items() if math.isfinite(value)}

    def flush(self) -> None:
        self._output.flush()


@dataclass(frozen=True)
class _Point:
    step: int
    time: float
    values: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)


class Spooled:
    """Writes to a rank's spool, from a thread of its own, a quarter of a second later at most."""

    def __init__(self, spool: MetricSpool, rank: int) -> None:
        self._spool = spool
        # Rank 0 speaks for the job; what the others measure are curves of their own.
        self._rank = rank or None
        self._points: list[_Point] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._arrived = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, step: int, values: Mapping[str, Any]) -> None:
        with self._lock:
            self._points.append(_Point(step, time.time(), values))
            if len(self._points) > MAX_WAITING:
                del self._points[: MAX_WAITING // 2]
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="metrics", daemon=True)
            self._thread.start()
        self._arrived.set()

    def flush(self) -> None:
        with self._writing:
            with self._lock:
                points, self._points = self._points, []
            for part in _runs(points):
                self._spool.append([self._table(part)])

    def _write_on(self) -> None:
        warned = False
        while True:
            self._arrived.wait()
            time.sleep(FLUSH_SECONDS)
            self._arrived.clear()
            try:
                self.flush()
            except Exception as error:
                # A full disk is waited for; whatever else it is, it is no reason to stop training.
                if not warned:
                    log.warning("metrics_lost", error=f"{type(error).__name__}: {error}")
                warned = True

    def _table(self, points: Sequence[_Point]) -> MetricTable:
        columns: dict[str, Sequence[float]]
        columns = {n: [float(p.values[n]) for p in points] for n in points[0].names}
        return MetricTable(self._rank, [p.step for p in points], [p.time for p in points], columns)


class Terminal:
    """Writes a line a second to standard error, as rank 0, and nothing as any other rank."""

    def __init__(self, rank: int) -> None:
        self._muted = rank != 0
        self._written_at = -math.inf
        self._unwritten: tuple[int, Mapping[str, Any]] | None = None

    def take(self, step: int, values: Mapping[str, Any]) -> None:
        if self._muted:
            return
        # A step that is reported in several calls is written with the last of them.
        known = (
            self._unwritten[1] if self._unwritten is not None and self._unwritten[0] == step else {}
        )
        self._unwritten = (step, {**known, **values})
        if time.monotonic() - self._written_at >= TERMINAL_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._unwritten is None:
            return
        step, values = self._unwritten
        self._unwritten, self._written_at = None, time.monotonic()
        shown = "".join(f"  {name} {float(value):.4g}" for name, value in values.items())
        print(f"step {step}{shown}", file=sys.stderr)  # noqa: T201 - the terminal is the place


def _runs(points: Sequence[_Point]) -> list[list[_Point]]:
    """Return consecutive points of the same names together, at most `_ROWS` of them."""
    found = []
    for _, group in groupby(points, key=lambda p: p.names):
        same = list(group)
        found += [same[i : i + _ROWS] for i in range(0, len(same), _ROWS)]
    return found


def checked_step(step: Any) -> int:
    """Return a step that a script gave as an int.

    Raises:
        TypeError, ValueError: it is no integer, or out of range.
    """
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"step must be an integer, not {step!r}") from None
    if not 0 <= number < MAX_STEP:
        raise ValueError(f"step must be 0 or above, and below 2^62, not {number}")
    return number


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ValueError(
            f"a metric's name has 1 to {MAX_NAME} printable characters; {name!r} has not"
        )
    return name


def _checked(name: str, value: Any) -> Any:
    """Return a float, or a copy of a scalar tensor that still lies on a GPU."""
    if isinstance(value, numbers.Real):
        return float(value)
    shape = getattr(value, "shape", None)
    if shape is None:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if tuple(shape) != ():
        raise TypeError(
            f"{name} must be a single number, not of the shape {tuple(shape)}; report its mean, say"
        )
    if hasattr(value, "detach"):
        detached = value.detach()
        # Elsewhere its number may not be there yet, and the script may change it in place.
        return float(detached) if detached.device.type == "cpu" else detached.clone()
    return float(value)
