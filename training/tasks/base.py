"""What the training loop asks of a task."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class TaskUnavailable(RuntimeError):
    """Something that the task needs is not installed or not readable on this host."""


class Data(Protocol):
    """A set of samples that can be asked for by index."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """The samples at `indices` (int64 [B]) as one batch: a tensor, or a tuple of tensors."""
        ...


@dataclass(frozen=True)
class TensorData:
    """Samples held in memory: row i of `inputs` and of `targets` is sample i."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


class Task(ABC):
    """A model, its data and its loss. Parallelism, precision and the optimizer come from outside.

    A task is built on every rank with the same seed in place, so that models agree.
    """

    train_data: Data
    eval_data: Data | None = None
    """Held-out samples; None: the task is not evaluated."""
    metric_names: tuple[str, ...] = ()
    """Names of what `loss` measures beside the loss, in its order."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A plain model in host memory, its weights drawn from the seeded generator."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The mean loss over a batch, and the means of `metric_names` over it, as scalar tensors.

        Called for training and, in evaluation mode and without gradients, for held-out data.
        """


def batch_to(batch: Any, device: torch.device) -> Any:
    """Move a batch's tensors from host memory to a device, without waiting for the copy."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        # From pageable memory the driver may wait for the GPU; page-locked blocks are reused.
        return batch.pin_memory().to(device, non_blocking=True)
    return tuple(batch_to(part, device) for part in batch)


def count(batch: Any) -> int:
    """Number of samples in a batch."""
    return len(batch if isinstance(batch, Tensor) else batch[0])


def mlp(widths: list[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers through `widths`, with ReLU (and dropout) between them."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs))
        if i < len(widths) - 2:
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
