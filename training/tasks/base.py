"""The training loop's interface to a task. `trainhall.task` offers it to users' own tasks."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeGuard

from pydantic import BaseModel
from torch import Tensor, nn
from torch.utils.data import default_collate

from trainhall.parallelism.declaration import Declaration


class TaskUnavailableError(RuntimeError):
    """Something that the task needs is not installed or not readable on this host."""


class BadDataError(ValueError):
    """The data that a task was given are not what it can learn from; the message names the path."""


class Data(Protocol):
    """A set of samples that gives a whole batch at once: right for what lies in memory.

    It may have a method `set_epoch(epoch: int)`, which is called before each batch, so that samples
    can be varied by epoch.
    """

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """Read the samples at `indices` (int64 [B]) as one batch: a tensor, or a tuple, list or
        dict of them, whose first dimension is B.

        What is drawn within it from Python's, numpy's or torch's random generators depends on the
        job's seed, the epoch and the first index alone."""


class MapStyle(Protocol):
    """A set that gives single samples, such as `torch.utils.data.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Samples = Data | MapStyle
"""Data that a task may train on."""


def gives_batches(data: Any) -> TypeGuard[Data]:
    """Return whether an object is `Data`.

    Map-style sets of other libraries may have a `batch` as well, which makes batches of a size:
    torch's data pipes by a `__getattr__`, Hugging Face's `datasets` by a method.
    """
    if not hasattr(data, "__len__") or inspect.getattr_static(data, "batch", None) is None:
        return False
    if not callable(data.batch):
        return False  # the size of one, say
    return next(iter(inspect.signature(data.batch).parameters), None) != "batch_size"


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

    Every rank builds the task, with the same seed in place, so that models agree. The process group
    is joined then: `torch.distributed` identifies the rank where that is needed.

    A subclass loads its data in `__init__(self, params, job)`: `params` is an instance of `Params`,
    or a dict where there is none, and `job` the whole job spec, whose `training.seed` keys what
    is random.
    """

    Params: ClassVar[type[BaseModel] | None] = None
    """A pydantic model of `task.params`; None: any mapping."""

    train_data: Samples
    eval_data: Samples | None = None
    """Validation samples; None: the task is not evaluated."""
    metric_names: tuple[str, ...] = ()
    """Names of what `loss` measures beside the loss, in its order."""
    eval_batch_size: int = 256
    """Samples that a rank evaluates at once."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Build a plain model in host memory, its weights drawn from the seeded generator."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute the mean loss over a batch, and the means of `metric_names` over it, as scalar
        tensors.

        Called for training and, in evaluation mode and without gradients, for validation data.
        """

    def declaration(self) -> Declaration:
        """Declare how the model may be spread over ranks; by default nothing of its layers."""
        return Declaration()

    def collate(self, samples: Sequence[Any]) -> Any:
        """Make one batch of the samples of a map-style data set; PyTorch's default stacks them."""
        return default_collate(list(samples))


def mlp(widths: list[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Build linear layers through `widths`, with ReLU (and dropout) between them."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs))
        if i < len(widths) - 2:
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
