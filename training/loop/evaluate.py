"""Evaluation on validation data, spread over the ranks and exact over the whole set."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainhall.parallelism.pipelining.batches import to_device
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.tasks.base import Task

Vector = npt.NDArray[np.float64]


def evaluate(
    task: Task,
    model: nn.Module,
    batches: Iterable[tuple[int, int, Any]],
    *,
    device: torch.device,
    precision: MixedPrecision,
    gather: Callable[[Vector], list[Vector]],
    held: int = 1,
) -> dict[str, float]:
    """Compute `eval_loss` and `eval_<metric>` over every validation sample once.

    Each batch counts by its samples, so neither a partial batch nor uneven ranks shift the mean.
    Parts are added one after the other, for the same bits whichever rank holds them.

    Args:
        model: the plain model; a wrapped one would wait for ranks that have fewer batches.
        batches: from `eval_batches`.
        gather: every rank's vector, in rank order.
        held: the most parts of the validation set that a rank has.
    """
    names = ["loss", *task.metric_names]
    sums = torch.zeros(held, 1 + len(names), dtype=torch.float64, device=device)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        for part, size, batch in batches:
            with precision.autocast():
                loss, metrics = task.loss(model, to_device(batch, device))
            means = torch.stack([value.detach().double() for value in (loss, *metrics)])
            sums[part, 0] += size
            sums[part, 1:] += means * size
    # Each as it was: a task may train with some of its modules in evaluation mode.
    for module, mode in modes.items():
        module.training = mode
    total = np.zeros(1 + len(names))
    for vector in gather(sums.cpu().numpy().reshape(-1)):
        for row in vector.reshape(held, -1):
            total += row
    return {
        f"eval_{name}": float(value / total[0])
        for name, value in zip(names, total[1:], strict=True)
    }
