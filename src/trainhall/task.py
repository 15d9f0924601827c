"""For tasks of your own: `from trainhall.task import Task` (docs/tasks.md)."""

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec.tasks import TaskParams
from trainhall.training.tasks.base import BadData, Data, Task, TaskUnavailable, TensorData

__all__ = ["BadData", "Data", "Declaration", "Task", "TaskParams", "TaskUnavailable", "TensorData"]
