"""Schedules over NCCL, between two GPUs."""

from pathlib import Path

import pytest
import torch
from support.cluster.attempts import RankServer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def test_nccl_matches_the_simulator(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.collective:add_up_on_gpus", 2, tmp_path) == [0, 0]


def test_nccl_collective_times_out(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.collective:stay_silent_on_gpus", 2, tmp_path) == [0, 0]
    message = (tmp_path / "0.txt").read_text(encoding="utf-8")
    assert message.startswith(
        "CollectiveTimeoutError: rank 0 timed out after 0.5 s: round 0 (reduce-scatter)"
    )
