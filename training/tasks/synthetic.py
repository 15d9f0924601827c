"""Random data of any size, for trials of a cluster rather than of learning."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.tasks import SyntheticParams
from trainhall.training.tasks.base import Task, mlp

_EVAL_SAMPLES = 256
_BANK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class RepeatedData:
    """`size` samples out of `n` rows in memory (16 MiB at most): sample i is row i mod n."""

    size: int
    inputs_NF: Tensor
    targets_N1: Tensor

    def __len__(self) -> int:
        return self.size

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = indices % len(self.inputs_NF)
        return self.inputs_NF[rows], self.targets_N1[rows]


class Synthetic(Task):
    """An MLP learns a fixed random function; `step_seconds` of idling imitate a larger model."""

    Params = SyntheticParams

    def __init__(self, params: SyntheticParams, job: JobSpec) -> None:
        self.params = params
        # The loss is asked for once in each accumulation round.
        self._idle_seconds = params.step_seconds / job.training.gradient_accumulation
        generator = torch.Generator().manual_seed(0)
        weights_F1 = torch.randn(self.params.features, 1, generator=generator)
        weights_F1 /= self.params.features**0.5
        self.train_data = self._data(self.params.samples, weights_F1, generator)
        self.eval_data = self._data(_EVAL_SAMPLES, weights_F1, generator)

    def _data(self, size: int, weights_F1: Tensor, generator: torch.Generator) -> RepeatedData:
        rows = max(1, min(size, 4096, _BANK_NUMBERS // self.params.features))
        inputs_NF = torch.randn(rows, self.params.features, generator=generator)
        return RepeatedData(size, inputs_NF, torch.tanh(inputs_NF @ weights_F1))

    def build_model(self) -> nn.Module:
        return mlp([self.params.features, *self.params.hidden, 1])

    def declaration(self) -> Declaration:
        return declaration_of(self.params)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs_BF, targets_B1 = batch
        if model.training and self._idle_seconds:
            time.sleep(self._idle_seconds)
        return functional.mse_loss(model(inputs_BF), targets_B1), ()
