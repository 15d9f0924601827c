"""The power of this host's GPUs while a run trains."""

import threading
import time
from collections.abc import Sequence
from typing import Self

from trainhall.cluster.agent.devices import gpu_power

_SECONDS = 0.1
"""Between two readings: as often as NVML renews its value."""


class PowerMeter:
    """Reads the power of GPUs in a thread, from entering it to leaving it.

    Args:
        gpus: indices by NVML; none: nothing is read.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = gpus
        self._readings: list[tuple[float, list[float | None]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="power", daemon=True)

    def __enter__(self) -> Self:
        if self.gpus:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self.gpus:
            self._thread.join()

    def watts(self, since: float, until: float) -> float | None:
        """Return the mean power of all GPUs together between two times (seconds since the epoch).

        None: one of them reports no power, or nothing was read in between.
        """
        found = [
            sum(watts)
            for read_at, each in self._readings
            if since <= read_at <= until
            and len(watts := [value for value in each if value is not None]) == len(self.gpus)
        ]
        return sum(found) / len(found) if found else None

    def _read(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._readings.append((time.time(), [gpu_power(index) for index in self.gpus]))
