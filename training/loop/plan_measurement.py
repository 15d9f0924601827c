"""Measures an attempt, to compare it with a plan's prediction."""

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from trainhall.training.loop.metrics_recorder import peak_memory_bytes

_WARM_UP = 3
"""First steps of an attempt, in which kernels are chosen and memory is taken from the system."""
_KEPT = 1000


class Measured:
    """Collects the steps of one attempt, from before its model is built on.

    A GPU's memory is what tensors held. On a CPU it is by how much the process has grown, so that
    what it held before (the interpreter, torch, the data set) does not count; a small model may fit
    in memory that the process had already.
    """

    def __init__(self, device: torch.device) -> None:
        self._before = 0.0 if device.type == "cuda" else peak_memory_bytes(device)
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        self._steps = 0
        self._peak = 0.0

    def add(self, seconds: Sequence[float], peak: float) -> None:
        """Add the steps of a step sync.

        Args:
            seconds: of the job's steps since the last one.
            peak: `peak_memory_bytes` of the rank that needed most.
        """
        skipped = max(0, _WARM_UP - self._steps)
        self._steps += len(seconds)
        self._seconds.extend(seconds[skipped:])
        self._peak = max(self._peak, peak - self._before)

    def as_event(self, communication_bytes: int | None) -> dict[str, Any] | None:
        """Return `measured` of `completed` and `paused` events; None: too few steps.

        Args:
            communication_bytes: those that this rank sends in a step; None: not counted.
        """
        if not self._seconds:
            return None
        return {
            "peak_memory_bytes": round(self._peak) or None,
            "step_seconds": median(self._seconds),
            "steps": self._steps,
            "communication_bytes": communication_bytes,
        }
