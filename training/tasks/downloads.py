"""Downloads data once per host, however many ranks need it."""

import os
from collections.abc import Callable

import torch.distributed as dist

from trainhall.distributed import breakable, process_group


def once_a_host(fetch: Callable[[], None]) -> None:
    """Call `fetch` on rank 0, then on the first rank of every other host, while all others wait.

    `fetch` must leave alone what is there already: hosts may share the folder. Outside a process
    group it is simply called.
    """
    if not dist.is_initialized():
        fetch()
        return
    group = process_group.cpu_group()
    if dist.get_rank() == 0:
        fetch()
    breakable.barrier(group)
    if dist.get_rank() != 0 and os.environ.get("LOCAL_RANK") == "0":
        fetch()
    breakable.barrier(group)
