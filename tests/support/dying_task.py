"""A task one of whose ranks dies at a chosen moment between two steps."""

import os
import signal
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainhall.task import Task, TaskParams, TensorData
from trainhall.training.link import MetricSpool
from trainhall.training.pulse import Pulse


class DyingTask(Task):
    """Fits a line."""

    class Params(TaskParams):
        by: int
        """The rank that dies, if it is of the first generation."""
        at: Literal["gathering", "writing"]
        before: int
        """Of its gatherings, or of the frames that it writes, the one that it does not come to."""

    def __init__(self, params: Params, job: Any) -> None:
        line = torch.linspace(-1, 1, 64).reshape(64, 1)
        self.train_data = TensorData(line, 2 * line)
        first = os.environ.get("TRAINHALL_GENERATION", "1") == "1"
        if first and int(os.environ["RANK"]) == params.by:
            if params.at == "gathering":
                _die_before(Pulse, "gather", params.before)
            else:
                _die_before(MetricSpool, "append", params.before)

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, targets = batch
        return (model(inputs) - targets).square().mean(), ()


def _die_before(owner: type, name: str, number: int) -> None:
    method, left = getattr(owner, name), iter(range(number, 0, -1))

    def call_or_die(*arguments: Any) -> Any:
        if next(left, 0) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments)

    setattr(owner, name, call_or_die)
