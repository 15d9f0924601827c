"""The sets of Trainhall's own tasks, as what they are."""

from typing import cast

from trainhall.task import Data
from trainhall.training.tasks.base import Samples


def in_memory(samples: Samples | None) -> Data:
    """The set of a task, which lies in memory and so gives whole batches."""
    assert hasattr(samples, "batch")
    return cast(Data, samples)
