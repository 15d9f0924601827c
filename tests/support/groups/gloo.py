"""Ranks of Gloo in one process."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def gloo_ranks(world_size: int, timeout: timedelta) -> list[Any]:
    """The ends of one group, which do nothing by themselves: each a `ProcessGroupGloo`, whose stub
    lacks the collectives."""
    store = dist.HashStore()

    def join(rank: int) -> dist.ProcessGroupGloo:
        return dist.ProcessGroupGloo(store, rank, world_size, timeout)

    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(join, range(world_size)))
