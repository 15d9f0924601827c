"""Schedules over NCCL, between two GPUs."""

from pathlib import Path

import pytest
from support.cluster.attempts import RankServer
from support.groups.gpus import can_group

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not can_group(2), reason="NOT TESTED: needs two GPUs"),
]


def test_nccl_matches_the_simulator(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.collective:add_up_on_gpus", 2, tmp_path) == [0, 0]


def test_nccl_collective_times_out(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.collective:stay_silent_on_gpus", 2, tmp_path) == [0, 0]
    message = (tmp_path / "0.txt").read_text(encoding="utf-8")
    assert message.startswith(
        "CollectiveTimeoutError: rank 0 timed out after 0.5 s: round 0 (all-reduce) "
        "still had 800 of 800 bytes to send to rank 1"
    )
