"""The process groups that end with a script's rank."""

import pytest
import torch.distributed as dist

from trainhall.training.sdk import together


def test_groups_are_known_with_and_without_torchs_own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        other = dist.new_group()
        assert together._groups() == {dist.group.WORLD, other}
        monkeypatch.delattr(type(dist.distributed_c10d._world), "pg_map")
        assert together._groups() == {dist.group.WORLD}
        monkeypatch.undo()
    finally:
        dist.destroy_process_group()
