"""Tasks by name: built-in ones, whose modules are imported when a job asks for them, and users'.

It imports `spec`, `common` and `process`.
"""

from importlib import import_module
from typing import cast

from trainhall.training.spec import JobSpec
from trainhall.training.tasks.base import Task
from trainhall.training.tasks.own import build_own_task

_CLASSES = {
    "cifar10": "trainhall.training.tasks.cifar10:Cifar10",
    "digits": "trainhall.training.tasks.digits:Digits",
    "fashion_mnist": "trainhall.training.tasks.mnist:FashionMnist",
    "image_folder": "trainhall.training.tasks.image_folder:ImageFolder",
    "language_model": "trainhall.training.tasks.language_model:LanguageModel",
    "mnist": "trainhall.training.tasks.mnist:Mnist",
    "synthetic": "trainhall.training.tasks.synthetic:Synthetic",
}


def build_task(spec: JobSpec) -> Task:
    """Build the spec's task, with its data loaded.

    Raises:
        ValueError: the spec runs a script.
        TaskUnavailableError: what the task needs is not on this host.
        BadDataError: its data are not what it can learn from.
        BadTaskError: a user's class is no task.
    """
    if spec.task is None:
        raise ValueError("the spec runs a script, which Trainhall's training loop does not drive")
    if spec.task.is_own:
        return build_own_task(spec)
    module, _, name = _CLASSES[spec.task.name].partition(":")
    return cast(Task, getattr(import_module(module), name)(spec.task.parsed_params(), spec))
