"""Evaluation on held-out data, spread over the ranks and exact over the whole set."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainhall.training.data import eval_shard
from trainhall.training.precision import MixedPrecision
from trainhall.training.tasks.base import Task, batch_to, count

Vector = npt.NDArray[np.float64]
BATCH = 1024


def evaluate(
    task: Task,
    model: nn.Module,
    *,
    device: torch.device,
    precision: MixedPrecision,
    rank: int,
    world_size: int,
    gather: Callable[[Vector], list[Vector]],
    batch: int = BATCH,
) -> dict[str, float]:
    """`eval_loss` and `eval_<metric>` over every held-out sample once; empty without any.

    Each batch counts by its samples, so neither a partial batch nor uneven ranks shift the mean.

    Args:
        model: the plain model; a wrapped one would wait for ranks that have fewer batches.
        gather: every rank's vector, in rank order.
    """
    if task.eval_data is None:
        return {}
    names = ["loss", *task.metric_names]
    sums = torch.zeros(1 + len(names), dtype=torch.float64, device=device)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for indices in eval_shard(len(task.eval_data), rank, world_size, batch):
            samples = batch_to(task.eval_data.batch(indices), device)
            with precision.autocast():
                loss, metrics = task.loss(model, samples)
            sizes = count(samples)
            means = torch.stack([value.detach().double() for value in (loss, *metrics)])
            sums[0] += sizes
            sums[1:] += means * sizes
    model.train(was_training)
    total = np.zeros(1 + len(names))
    for part in gather(sums.cpu().numpy()):
        total += part
    return {
        f"eval_{name}": float(value / total[0])
        for name, value in zip(names, total[1:], strict=True)
    }
