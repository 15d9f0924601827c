"""The built-in tasks by name; a task's module is imported when a job asks for it."""

from importlib import import_module
from typing import cast

from trainhall.training.spec import JobSpec
from trainhall.training.tasks.base import Task

_CLASSES = {
    "digits": "trainhall.training.tasks.digits:Digits",
    "synthetic": "trainhall.training.tasks.synthetic:Synthetic",
}


def build_task(spec: JobSpec) -> Task:
    """The spec's task, with its data loaded.

    Raises:
        ValueError: the spec runs a script.
        TaskUnavailable: what the task needs is not on this host.
    """
    if spec.task is None:
        raise ValueError("the spec runs a script, which Trainhall's training loop does not drive")
    module, _, name = _CLASSES[spec.task.name].partition(":")
    return cast(Task, getattr(import_module(module), name)(spec))
