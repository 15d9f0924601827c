"""Evaluation is exact over the whole held-out set, however it is cut."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainhall.training.evaluate import evaluate
from trainhall.training.loader import Share, Workers, eval_batches
from trainhall.training.precision import MixedPrecision
from trainhall.training.reading import Reader
from trainhall.training.spec import Precision
from trainhall.training.tasks.base import Task, TensorData

CPU = torch.device("cpu")


class Distances(Task):
    """Measures how far samples are from the weight; nothing else."""

    metric_names = ("accuracy",)

    def __init__(self, size: int) -> None:
        values = torch.arange(size, dtype=torch.float64) ** 2
        self.train_data = self.eval_data = TensorData(values, values)

    def build_model(self) -> nn.Module:
        return nn.Dropout(0.5)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        values, _ = batch
        return model(values).mean(), ((values > 10).double().mean(),)


@pytest.mark.parametrize("size", [1, 7, 30])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [1, 4, 1024])
def test_the_mean_counts_every_sample_once(size: int, world_size: int, batch: int) -> None:
    task = Distances(size)
    model = task.build_model()

    def on(rank: int, gather: Any) -> dict[str, float]:
        data = task.eval_data
        batches = eval_batches(
            Reader(task, data, 0), len(data), Share(rank, world_size), Workers(0, 1), batch, str
        )
        return evaluate(
            task,
            model,
            batches,
            device=CPU,
            precision=MixedPrecision(Precision.FP32, CPU),
            gather=gather,
        )

    sent: list[np.ndarray] = []
    for rank in range(world_size):
        on(rank, lambda vector: sent.append(vector) or [vector + 1])
    found = [on(rank, lambda _: sent) for rank in range(world_size)]
    values = task.train_data.inputs
    expected = {
        "eval_loss": values.mean().item(),
        "eval_accuracy": (values > 10).double().mean().item(),
    }
    assert found == [pytest.approx(expected, rel=1e-12)] * world_size
    assert model.training
