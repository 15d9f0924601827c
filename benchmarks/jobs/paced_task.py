"""Task of the footprint benchmark: a fixed number of steps per second."""

import time
from typing import Any

from torch import Tensor, nn

from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import SyntheticParams
from trainhall.training.tasks.synthetic import Synthetic

_BEHIND_SECONDS = 1.0
"""The most that is caught up: a job that was held up for long goes on as it did."""


class Paced(Synthetic):
    """A step is due `step_seconds` after the one before was, and what is late is caught up; where
    `Synthetic` idles for as long on top of its own work, which on a busy host is most of a step."""

    def __init__(self, params: SyntheticParams, job: JobSpec) -> None:
        super().__init__(params.model_copy(update={"step_seconds": 0.0}), job)
        self._interval = params.step_seconds
        self._due = 0.0

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        if model.training:
            now = time.monotonic()
            self._due = max(self._due + self._interval, now - _BEHIND_SECONDS)
            time.sleep(max(0.0, self._due - now))
        return super().loss(model, batch)
