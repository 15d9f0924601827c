"""A task one of whose ranks dies, or gets stuck, at a chosen moment."""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from support.groups.gloo import gloo_ranks
from torch import Tensor, nn

from trainhall.distributed import gloo
from trainhall.task import Task, TaskParams, TensorData
from trainhall.training.elastic import loop as elastic
from trainhall.training.elastic.step_rollback import StepRollback
from trainhall.training.link.spool import MetricSpool
from trainhall.training.loop.train_state import TrainingState
from trainhall.training.sync import step_sync
from trainhall.training.sync.step_sync import StepSync


class DyingTask(Task):
    """Fits a line."""

    class Params(TaskParams):
        by: int
        """The rank that dies, if it is of the first generation."""
        at: Literal["gathering", "writing", "leaving", "stepping", "computing", "saving", "losing"]
        before: int
        """Of its gatherings, its saves, its passes, or of the frames that it writes, the one that
        it does not come to; of the groups that it leaves, or of its steps, the one that it does
        not end; of its passes, the one behind which it `loses` a message."""
        loses: str = "all_reduce"
        """A function of `torch.distributed`, or `send`."""
        mark: str = os.devnull
        """A file that is there once it stays in a step, or has lost a message."""

    def __init__(self, params: Params, job: Any) -> None:
        line = torch.linspace(-1, 1, 64).reshape(64, 1)
        self.train_data = TensorData(line, 2 * line)
        if _began_as(params.by):
            mark = Path(params.mark)
            moments: dict[str, tuple[type, str, Callable[[], None]]] = {
                "gathering": (StepSync, "gather", _die),
                "writing": (MetricSpool, "append", _die),
                "leaving": (StepRollback, "roll_back", partial(_stay, mark)),
                "stepping": (DyingTask, "loss", partial(_stay, mark)),
                "computing": (DyingTask, "loss", _die),
                "saving": (TrainingState, "snapshot", _die),
                "losing": (DyingTask, "loss", partial(_lose, params.loses, mark)),
            }
            owner, name, what = moments[params.at]
            _before(owner, name, params.before, what)

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, targets = batch
        return (model(inputs) - targets).square().mean(), ()


class TwiceDyingTask(DyingTask):
    """Rank 0 dies as well: when it is to give its tensors to another rank."""

    def __init__(self, params: DyingTask.Params, job: Any) -> None:
        super().__init__(params, job)
        _sync_by_steps_alone()
        if _began_as(0):
            _before(elastic.ElasticLoop, "copy_tensors", 1, _die)


class PoisonedTask(DyingTask):
    """Its loss is no number in one step."""

    class Params(DyingTask.Params):
        poisoned: int

    def __init__(self, params: Params, job: Any) -> None:
        super().__init__(params, job)
        _sync_by_steps_alone()
        self.poisoned = params.poisoned
        self.passes = 0

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss, measures = super().loss(model, batch)
        self.passes += 1
        return loss * torch.nan if self.passes == self.poisoned else loss, measures


def _began_as(rank: int) -> bool:
    """Whether this process is that rank, and of the first generation."""
    first = os.environ.get("TRAINHALL_GENERATION", "1") == "1"
    return first and int(os.environ["RANK"]) == rank


def _sync_by_steps_alone() -> None:
    """Have this rank sync at steps 1, 3, 7, 15 and 31, however fast it is."""
    step_sync.TARGET_SECONDS = float("inf")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stay(mark: Path) -> None:
    mark.touch()
    while True:
        time.sleep(600)


def _before(owner: Any, name: str, number: int, what: Callable[[], None]) -> None:
    method, left = getattr(owner, name), iter(range(number, 0, -1))

    def call(*arguments: Any, **options: Any) -> Any:
        if next(left, 0) == 1:
            what()
        return method(*arguments, **options)

    setattr(owner, name, call)


def _lose(name: str, mark: Path) -> None:
    """Have the next call of a collective, or the next message of a ring, never end: as with Gloo
    when it loses what it was about to send. It is made among ranks that do nothing else."""
    if name == "send":
        begin = gloo._Line.begin

        def begin_to_send(self: gloo._Line, step: int, buffer: Tensor) -> None:
            if getattr(self._begin, "__name__", "") != "send":
                begin(self, step, buffer)
                return
            gloo._Line.begin = begin  # type: ignore[method-assign]
            self._work = _lonely().send([buffer], 1, 0)
            mark.touch()

        gloo._Line.begin = begin_to_send  # type: ignore[method-assign]
        return
    collective = getattr(dist, name)

    def lost(*tensors: Any, async_op: bool, **options: Any) -> dist.Work:
        assert async_op, "else nobody looks up"
        setattr(dist, name, collective)
        work = _ALONE[name](_lonely(), *tensors, **options)
        mark.touch()
        return work

    setattr(dist, name, lost)


def _reduce_alone(alone: Any, tensor: Tensor, *_: Any, **__: Any) -> dist.Work:
    work: dist.Work = alone.allreduce([tensor])
    return work


def _exchange_alone(
    alone: Any,
    result: Tensor,
    mine: Tensor,
    *,
    output_split_sizes: list[int],
    input_split_sizes: list[int],
) -> dist.Work:
    work: dist.Work = alone.alltoall_base(result, mine, output_split_sizes, input_split_sizes)
    return work


_ALONE: dict[str, Callable[..., dist.Work]] = {
    "all_reduce": _reduce_alone,
    "all_to_all_single": _exchange_alone,
}


_kept: list[dist.ProcessGroupGloo] = []
"""What would wait for its threads when it goes."""


def _lonely() -> Any:
    """One end of a group that nobody leaves, and whose other end does nothing."""
    own, other = gloo_ranks(2, timedelta(minutes=30))
    _kept.extend((own, other))
    return own
