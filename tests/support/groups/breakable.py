"""What the ranks of the test of `breakable` do."""

import os
from pathlib import Path

import torch
from torch import Tensor

from trainhall.distributed import breakable, process_group
from trainhall.distributed.environment import RankEnvironment


def value(rank: int) -> dict[str, object]:
    return {"rank": rank, "text": "x" * 1000**rank}


def some_tensors(rank: int) -> list[Tensor]:
    """Of several types and forms, one alone too large to go with others."""
    forms = [(3,), (), (1100, 1100), (2, 3), (0,), (5, 1)]
    kinds = [torch.float32, torch.int64, torch.float32, torch.float32, torch.float64, torch.float32]
    drawn = torch.Generator().manual_seed(rank)
    tensors = [
        torch.randint(100, form, generator=drawn).to(kind)
        for form, kind in zip(forms, kinds, strict=True)
    ]
    return [*tensors, torch.rand(2, 4, 3, 3, generator=drawn).to(memory_format=torch.channels_last)]


def objects(folder: Path) -> int:
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        group, own = process_group.cpu_group(), value(environment.rank)
        exchanged = breakable.gather_objects(own, group), breakable.broadcast_object(own, 1, group)
        tensors = some_tensors(environment.rank)
        breakable.broadcast(tensors, 1)
        torch.save((*exchanged, tensors), folder / f"{environment.rank}.pt")
    return 0
