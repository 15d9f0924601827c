"""All ranks of a job hold the same data."""

import torch.distributed as dist

from trainhall.distributed import breakable


class DatasetMismatchError(RuntimeError):
    """The hosts of a job hold different data."""


def check_same_data(size: int, group: dist.ProcessGroup) -> None:
    """See that all ranks train on sets of one size; otherwise they would not take equal steps.

    Raises:
        DatasetMismatchError: two hosts have different data.
    """
    sizes = breakable.gather_objects(size, group)
    for rank, other in enumerate(sizes):
        if other != sizes[0]:
            raise DatasetMismatchError(
                f"rank 0 has a training set of {sizes[0]} samples, rank {rank} one of {other}; "
                "give all hosts the same data"
            )
