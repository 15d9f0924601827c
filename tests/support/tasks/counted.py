"""A task whose ranks write down which samples they train on, and that ends or pauses itself."""

import json
import os
import signal
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from trainhall.task import Task, TaskParams
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command


class Counted(Dataset[Any]):
    """Sample i is i."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": torch.full((2,), index / self.size)}


class CountedTask(Task):
    """Each rank appends a line with the samples of every micro-batch to its ledger."""

    class Params(TaskParams):
        size: int
        end: Literal["never", "kill", "pause"] = "never"
        at: int = 0
        """Micro-batches of this attempt before the end."""
        by: int = 0
        """The rank that is killed, or that asks for the pause."""

    def __init__(self, params: Params, job: Any) -> None:
        self.params = params
        self.train_data = Counted(params.size)
        self.attempt = AttemptFolder(Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"]))
        self.rank = int(os.environ["RANK"])
        self.taken = 0

    def build_model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        with ledger(self.attempt, self.rank).open("a") as file:
            file.write(json.dumps(batch["id"].tolist()) + "\n")
        self.taken += 1
        if self.taken == self.params.at and self.rank == self.params.by:
            if self.params.end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.params.end == "pause":
                Control(self.attempt.control).send(Command.PAUSE)
        return model(batch["x"]).square().mean(), ()


def ledger(attempt: AttemptFolder, rank: int) -> Path:
    return attempt.rank(rank) / "ledger.jsonl"
