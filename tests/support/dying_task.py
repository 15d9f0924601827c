"""A task one of whose ranks dies at a chosen moment between two steps."""

import os
import signal
from typing import Any

import torch
from torch import Tensor, nn

from trainhall.task import Task, TaskParams, TensorData
from trainhall.training.pulse import Pulse, Rows


class DyingTask(Task):
    """Fits a line."""

    class Params(TaskParams):
        by: int
        """The rank that dies, if it is of the first generation."""
        before: int
        """Of its gatherings, the one that it does not take part in any more."""

    def __init__(self, params: Params, job: Any) -> None:
        line = torch.linspace(-1, 1, 64).reshape(64, 1)
        self.train_data = TensorData(line, 2 * line)
        first = os.environ.get("TRAINHALL_GENERATION", "1") == "1"
        if first and int(os.environ["RANK"]) == params.by:
            _die_before_gathering(params.before)

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, targets = batch
        return (model(inputs) - targets).square().mean(), ()


def _die_before_gathering(number: int) -> None:
    gather, left = Pulse.gather, iter(range(number, 0, -1))

    def gather_or_die(pulse: Pulse, vector: Rows) -> list[Rows]:
        if next(left, 0) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return gather(pulse, vector)

    setattr(Pulse, "gather", gather_or_die)  # noqa: B010 - mypy refuses the other way
