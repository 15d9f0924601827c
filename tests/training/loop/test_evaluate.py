"""Evaluation is exact over the whole validation set, however it is cut."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainhall.training.data.batch_reader import Reader
from trainhall.training.data.loader import Share, Workers, eval_batches
from trainhall.training.loop.evaluate import evaluate
from trainhall.training.optim.precision import MixedPrecision
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


def evaluated(task: Task, model: nn.Module, shares: list[Share], batch: int) -> list[Any]:
    """What each rank finds, one after the other."""
    data = task.eval_data
    assert data is not None

    def on(share: Share, gather: Any) -> dict[str, float]:
        return evaluate(
            task,
            model,
            eval_batches(Reader(task, data, 0), len(data), share, Workers(0, 1), batch, str),
            device=CPU,
            precision=MixedPrecision(Precision.FP32, CPU),
            gather=gather,
            held=max(share.held for share in shares),
        )

    sent: list[np.ndarray] = []

    def send(vector: np.ndarray) -> list[np.ndarray]:
        sent.append(vector)
        return [vector + 1]

    for share in shares:
        on(share, send)
    return [on(share, lambda _: sent) for share in shares]


@pytest.mark.parametrize("size", [1, 7, 30])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [1, 4, 1024])
def test_mean_counts_every_sample_once(size: int, world_size: int, batch: int) -> None:
    task = Distances(size)
    model = task.build_model()

    found = evaluated(task, model, [Share(rank, world_size) for rank in range(world_size)], batch)
    assert isinstance(task.train_data, TensorData)
    values = task.train_data.inputs
    expected = {
        "eval_loss": values.mean().item(),
        "eval_accuracy": (values > 10).double().mean().item(),
    }
    assert found == [pytest.approx(expected, rel=1e-12)] * world_size
    assert model.training


def test_evaluate_keeps_modules_in_eval_mode() -> None:
    task = Distances(4)
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(4)).eval())
    modes = [module.training for module in model.modules()]

    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        assert not any(module.training for module in model.modules())
        return batch[0].mean(), (batch[0].mean(),)

    task.loss = loss  # type: ignore[method-assign]
    evaluated(task, model, [Share(0, 1)], 4)
    assert [module.training for module in model.modules()] == modes


def test_evaluate_sums_independent_of_ranks() -> None:
    task = Distances(100)
    torch.manual_seed(0)
    task.eval_data = TensorData(values := torch.randn(100, dtype=torch.float64).exp(), values)
    found = []
    for helds in ([7], [4, 3], [3, 2, 2], [1] * 7):
        starts = [sum(helds[:rank]) for rank in range(len(helds))]
        shares = [Share(s, 7, held=held) for s, held in zip(starts, helds, strict=True)]
        found += evaluated(task, task.build_model(), shares, 4)
    assert found == [found[0]] * len(found)
