"""Reproducible jobs of real ranks: the same bits, however many there are and whatever happens."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import Attempt, RankServer

from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED
from trainhall.training.process.deterministic import choose_kernels

CURVES = ("loss", "accuracy", "gradient_norm", "learning_rate")
DIGITS = {"name": "digits", "params": {"hidden": [33, 17], "dropout": 0.2}}
NORMED = {"name": "support.tasks.own:Normed"}


def spec(workers: int, task: dict[str, Any] = DIGITS, **training: Any) -> dict[str, Any]:
    return {
        "task": task,
        "resources": {"workers": workers},
        "training": {
            "steps": 6,
            "global_batch_size": 48,
            "seed": 7,
            "gradient_clip": 0.1,
            "evaluate_every_steps": 4,
            "reproducible": True,
            **training,
        },
    }


def bits(attempts: list[Attempt]) -> dict[str, Any]:
    """All that must not differ."""
    found: dict[str, Any] = {
        name: [(step, value.hex()) for a in attempts for step, value in a.curve(name)]
        for name in (*CURVES, "eval_loss", "eval_accuracy", "chain_link", "chain_samples")
    }
    result = attempts[-1].event("completed")
    return found | {"weights": result["weights_sha256"], "chain": result["chain"]}


@pytest.mark.parametrize(
    ("task", "options"),
    [
        pytest.param(DIGITS, {"gradient_accumulation": 2}, id="dropout, accumulation"),
        pytest.param(DIGITS, {"precision": "bf16", "logical_shards": 6}, id="bf16, 6 shards"),
        pytest.param(DIGITS, {"precision": "fp16", "optimizer": "sgd"}, id="fp16, sgd"),
        pytest.param(
            NORMED, {"gradient_accumulation": 3, "data_workers": 1}, id="batch norm, data worker"
        ),
    ],
)
def test_any_number_of_ranks_gives_the_same_bits(
    ranks: RankServer, tmp_path: Path, task: dict[str, Any], options: dict[str, Any]
) -> None:
    found = []
    for workers in (1, 2, 3, 4):
        attempt = ranks.run(tmp_path / str(workers), spec(workers, task, **options))
        assert attempt.codes == [0] * workers, attempt.stderr()
        assert len({value for _, value in attempt.curve("chain_link")}) == 6
        found.append(bits([attempt]))
    assert found == [found[0]] * 4


def test_uneven_shards_are_bit_exact(ranks: RankServer, tmp_path: Path) -> None:
    """Seven shards on 3 ranks: each holds parts of different subtrees."""
    options = {"logical_shards": 7, "global_batch_size": 49}
    found = [
        bits([ranks.run(tmp_path / str(workers), spec(workers, NORMED, **options))])
        for workers in (1, 3)
    ]
    assert found[0] == found[1]


def test_reproducible_rank_uses_one_thread() -> None:
    torch.set_num_threads(2)
    choose_kernels(torch.device("cpu"))
    assert torch.get_num_threads() == 1


def test_paused_and_resized_run_is_bit_exact(ranks: RankServer, tmp_path: Path) -> None:
    whole = ranks.run(tmp_path / "whole", spec(2))
    attempts: list[Attempt] = []
    for number, workers in enumerate((4, 3, 1, 4), start=1):
        saved = attempts[-1].events(kind="checkpoint") if attempts else []
        attempts.append(
            ranks.run(
                tmp_path / "pieces",
                spec(workers),
                attempt=number,
                resume=[saved[-1]["data"]["name"]] if saved else [],
                command=Command.PAUSE if number < 4 else Command.RUN,
            )
        )
    assert [a.codes[0] for a in attempts] == [EXIT_PAUSED] * 3 + [0], attempts[-1].stderr()
    assert bits(attempts) == bits([whole])


def test_parameter_without_a_gradient_is_named(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, spec(2, {"name": "support.tasks.own:Unused"}))
    assert attempt.codes == [1, 1]
    message = attempt.event("failure")["message"]
    assert "spare.weight, spare.bias got no gradient" in message


def test_failed_logical_sum_reports_its_error(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, spec(2), function="support.groups.tree:failing")
    assert attempt.codes == [1, 1]
    for rank in (0, 1):
        message = attempt.event("failure", rank)["message"]
        assert message == "rank 1 has closed the connection"
