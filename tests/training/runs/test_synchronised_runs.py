"""Whole runs of jobs whose gradients are combined by algorithms of ours."""

from pathlib import Path
from typing import Any, get_args

import pytest
from support.cluster.attempts import Attempt, RankServer

from trainhall.parallelism.data_parallel.gradient_sync import Algorithm
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED

ALGORITHMS = [name for name in get_args(Algorithm) if name != "native"]


def digits(workers: int, algorithm: str, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": [32, 16]}},
        "resources": {"workers": workers},
        "parallelism": {"gradient_sync": {"algorithm": algorithm, "bucket_mb": 0.005}},
        "training": {"steps": 5, "global_batch_size": 48, "seed": 7, **training},
    }


def names(attempt: Attempt) -> list[str]:
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


@pytest.fixture(scope="module")
def native(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    return ranks.run(tmp_path_factory.mktemp("native"), digits(3, "native"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_run_resumes_with_other_rank_count(
    ranks: RankServer, tmp_path: Path, native: Attempt, algorithm: str
) -> None:
    first = ranks.run(tmp_path, digits(2, algorithm), command=Command.PAUSE)
    assert first.codes == [EXIT_PAUSED] * 2, first.stderr()
    second = ranks.run(tmp_path, digits(3, algorithm), attempt=2, resume=names(first))
    assert second.codes == [0] * 3, second.stderr()
    losses = [loss for each in (first, second) for _, loss in each.curve("loss")]
    assert losses == pytest.approx([loss for _, loss in native.curve("loss")], rel=1e-4)
    for name in ("communication_seconds", "communication_hidden_seconds"):
        assert all(value >= 0 for _, value in second.curve(name))
        assert len(second.curve(name)) == 4


def test_single_rank_needs_no_gradient_sync(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, digits(1, "hierarchical"))
    assert attempt.codes == [0], attempt.stderr()


def test_paused_and_resumed_is_uninterrupted_bit_for_bit(ranks: RankServer, tmp_path: Path) -> None:
    spec = digits(3, "ring", precision="fp16", gradient_accumulation=2)
    whole = ranks.run(tmp_path / "whole", spec)
    first = ranks.run(tmp_path / "pieces", spec, command=Command.PAUSE)
    second = ranks.run(tmp_path / "pieces", spec, attempt=2, resume=names(first))
    assert second.codes == [0] * 3, second.stderr()
    done, expected = second.event("completed"), whole.event("completed")
    assert done["weights_sha256"] == expected["weights_sha256"]


def test_rank_death_reports_peer_round_and_bytes(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, digits(3, "ring"), function="support.ranks.hook:die_in_a_job")
    assert attempt.codes == [1, -9, 1]
    failure = attempt.event("failure", rank=2)
    assert failure["type"] == "PeerLostError"
    assert failure["message"].startswith("rank 1 is gone (")
    assert "bytes to get from rank 1" in failure["message"]
