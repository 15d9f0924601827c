"""For tasks of your own: `from trainhall.task import Task` (docs/tasks.md)."""

from trainhall.parallelism.declaration import Declaration, Sequences, Split
from trainhall.training.spec.tasks import TaskParams
from trainhall.training.tasks.base import BadDataError, Data, Task, TaskUnavailableError, TensorData

__all__ = [
    "BadDataError",
    "Data",
    "Declaration",
    "Sequences",
    "Split",
    "Task",
    "TaskParams",
    "TaskUnavailableError",
    "TensorData",
]
