"""For tasks of your own: `from trainhall.task import Task` (docs/tasks.md)."""

from trainhall.parallelism.declaration import Declaration, Sequences, Split
from trainhall.training.spec.tasks import TaskParams
from trainhall.training.tasks.base import BadData, Data, Task, TaskUnavailable, TensorData

__all__ = [
    "BadData",
    "Data",
    "Declaration",
    "Sequences",
    "Split",
    "Task",
    "TaskParams",
    "TaskUnavailable",
    "TensorData",
]
