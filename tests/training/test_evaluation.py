"""Evaluation is exact over the whole held-out set, however it is cut."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainhall.training.evaluate import evaluate
from trainhall.training.precision import MixedPrecision
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
        return evaluate(
            task,
            model,
            device=CPU,
            precision=MixedPrecision(Precision.FP32, CPU),
            rank=rank,
            world_size=world_size,
            gather=gather,
            batch=batch,
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


def test_a_task_without_held_out_data_measures_nothing() -> None:
    task = Distances(3)
    task.eval_data = None
    found = evaluate(
        task,
        task.build_model(),
        device=CPU,
        precision=MixedPrecision(Precision.FP32, CPU),
        rank=0,
        world_size=1,
        gather=lambda vector: [vector],
    )
    assert found == {}
