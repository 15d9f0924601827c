"""Jobs whose gradients are compressed: pauses, other numbers of ranks, and what is left unsent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import Attempt, RankServer
from support.groups import sync as sync_ranks
from support.storage.saved import tensors_of
from torch import nn

from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED
from trainhall.training.loop.network_probe import message

LOSSY = ["topk", "powersgd"]
WEIGHT = "0.weight"


def digits(workers: int = 2, sync: dict[str, Any] | None = None, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": [32, 16]}},
        "resources": {"workers": workers},
        "parallelism": {"gradient_sync": sync or {}},
        "training": {"steps": 5, "global_batch_size": 48, "seed": 7, **training},
    }


def names(attempt: Attempt) -> list[str]:
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


def saved(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """The tensors of the gradient sync in a checkpoint, without the part's name."""
    part, tensors = "gradient_sync/", tensors_of(folder / name)
    return {k.removeprefix(part): v for k, v in tensors.items() if k.startswith(part)}


@pytest.mark.parametrize(
    "sync",
    [
        pytest.param({"compression": "topk", "ratio": 0.05}, id="topk"),
        pytest.param({"compression": "powersgd", "algorithm": "ring"}, id="powersgd over a ring"),
    ],
)
def test_paused_and_resumed_is_uninterrupted_bit_for_bit(
    ranks: RankServer, tmp_path: Path, sync: dict[str, Any]
) -> None:
    spec = digits(3, sync)
    whole = ranks.run(tmp_path / "whole", spec)
    assert whole.codes == [0] * 3, whole.stderr()
    pieces = [ranks.run(tmp_path / "pieces", spec, command=Command.PAUSE)]
    pieces.append(
        ranks.run(
            tmp_path / "pieces", spec, attempt=2, resume=names(pieces[0]), command=Command.PAUSE
        )
    )
    pieces.append(ranks.run(tmp_path / "pieces", spec, attempt=3, resume=names(pieces[1])))
    assert [p.codes for p in pieces] == [[EXIT_PAUSED] * 3] * 2 + [[0] * 3], pieces[-1].stderr()
    joined = [point for piece in pieces for point in piece.curve("loss")]
    assert joined == whole.curve("loss")
    done, expected = pieces[-1].event("completed"), whole.event("completed")
    assert done["weights_sha256"] == expected["weights_sha256"]


@pytest.mark.parametrize("compression", LOSSY)
def test_every_rank_has_its_own_in_the_checkpoint(
    ranks: RankServer, tmp_path: Path, compression: str
) -> None:
    attempt = ranks.run(tmp_path, digits(2, {"compression": compression}))
    assert attempt.codes == [0, 0], attempt.stderr()
    tensors = saved(tmp_path / "checkpoints", names(attempt)[0])
    weight, other = (tensors[f"residual/{rank}/{WEIGHT}"] for rank in range(2))
    assert weight.shape == other.shape == (32, 64)
    assert weight.any()
    assert not torch.equal(weight, other)
    assert any(key.startswith("basis/") for key in tensors) == (compression == "powersgd")


def test_no_gradient_is_lost_between_numbers_of_ranks(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.sync:save", 3, tmp_path) == [0] * 3
    left = [sync_ranks.left_by(rank) for rank in range(3)]
    total = {name: sum(each[name] for each in left) for name in sync_ranks.SHAPES}
    for world_size in (1, 2, 3, 4):
        assert ranks.call("support.groups.sync:load", world_size, tmp_path) == [0] * world_size
        loaded = [torch.load(tmp_path / f"{world_size}-{rank}.pt") for rank in range(world_size)]
        for name, expected in total.items():
            kept = [mine[name] for mine, _ in loaded]
            torch.testing.assert_close(sum(kept), expected, rtol=1e-14, atol=1e-14)
            for _, residual in loaded:
                torch.testing.assert_close(residual[name], expected, rtol=1e-14, atol=1e-14)
            if world_size == 3:
                assert all(torch.equal(a, b[name]) for a, b in zip(kept, left, strict=True))
            else:
                assert all(torch.equal(each, kept[0]) for each in kept)


def test_residuals_are_saved_from_some_ranks(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.sync:save_beside_newcomers", 3, tmp_path) == [0] * 3
    tensors = saved(tmp_path / "saved", sync_ranks.NAME)
    for name, left in sync_ranks.left_by(2).items():
        assert torch.equal(tensors[f"residual/2/{name}"], left)
        for rank in range(2):
            assert torch.equal(tensors[f"residual/{rank}/{name}"], torch.zeros_like(left))


def test_pending_residual_is_added_until_cleared() -> None:
    model = nn.Linear(3, 2, bias=False)
    strategy = Replicas(model, device=torch.device("cpu"), bucket_mb=25)
    residual = torch.randn(2, 3)
    assert strategy.add_pending_residual({"weight": residual})
    for expected, taken in ((1 + residual, False), (1 + residual, True), (torch.ones(2, 3), True)):
        model(torch.ones(1, 3)).sum().backward()
        norm = strategy.clip(None)
        assert model.weight.grad is not None
        assert torch.equal(model.weight.grad, expected)
        torch.testing.assert_close(norm, expected.norm())
        strategy.clear_gradients()
        if taken:
            strategy.clear_pending_residual()


def test_run_resumes_with_other_ranks_and_compression(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, digits(3, {"compression": "topk"}), command=Command.PAUSE)
    resume = names(first)
    for number, (workers, sync) in enumerate(
        [
            (2, {"compression": "topk"}),
            (3, {"compression": "powersgd"}),
            (3, {"compression": "fp16"}),
            (2, {}),
            (1, {}),
        ],
        start=2,
    ):
        attempt = ranks.run(
            tmp_path, digits(workers, sync), attempt=number, resume=resume, command=Command.PAUSE
        )
        assert attempt.codes == [EXIT_PAUSED] * workers, attempt.stderr()
        assert not [e for e in attempt.events(kind="note") if "left out" in e["data"]["message"]]
        resume = names(attempt) if number == 2 else resume


def test_unusable_residual_is_reported(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, digits(2, {"compression": "topk"}), command=Command.PAUSE)
    spec = digits(2) | {"parallelism": {"strategy": "fsdp"}}
    second = ranks.run(tmp_path, spec, attempt=2, resume=names(first))
    assert second.codes == [0, 0], second.stderr()
    messages = [e["data"]["message"] for e in second.events(kind="note")]
    assert any(
        "residuals of the gradient compression were dropped" in message for message in messages
    )


def test_run_reports_potential_compression_gains(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(
        tmp_path / "topk",
        digits(2, {"compression": "topk", "measure_links": True}, epochs=1, steps=None),
    )
    event = attempt.event("network")
    assert event == attempt.event("completed")["network"]
    assert event["links"].keys() == {"host"}
    assert event["links"]["host"]["bandwidth"] > 0
    assert {name for name, each in event["compressions"].items() if each["on"]} == {"topk"}
    assert event["compressions"].keys() == {"fp16", "bf16", "topk", "powersgd"}
    assert re.search(r"topk \(in use\) (saves|costs) [\d.]+ (µs|ms|s)", event["message"])
    assert re.search(r"per step: fp16 (saves|costs) [\d.]+ (µs|ms|s)", event["message"])
    spent = [seconds for _, seconds in attempt.curve("compression_seconds")]
    assert len(spent) == attempt.event("completed")["steps"]
    assert all(seconds > 0 for seconds in spent)


def test_links_are_measured_only_on_request(ranks: RankServer, tmp_path: Path) -> None:
    for name, spec in {
        "one rank": digits(1, {"measure_links": True}),
        "not asked for": digits(2),
    }.items():
        attempt = ranks.run(tmp_path / name, spec)
        assert not attempt.events(kind="network")
        assert not attempt.curve("compression_seconds")


def test_run_continues_after_failed_link_measurement(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(
        tmp_path, digits(2, {"measure_links": True}), function="support.groups.probe:failing"
    )
    assert attempt.codes == [0, 0], attempt.stderr()
    event = attempt.event("network")
    assert event == {"message": "links: not measured: rank 1: RuntimeError: planted"}
    assert attempt.event("completed")["network"] == event


def test_link_measurement_uses_the_backend(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.probe:by_messages", 3, tmp_path) == [0, 0, 0]
    links = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert links[0] == links[1] == links[2]
    assert links[0].keys() == {"host"}
    assert links[0]["host"]["bandwidth"] > 0


def test_network_report_is_readable() -> None:
    each = {"sending_seconds": 0.1, "own_seconds": 0.002}
    report = {
        "links": {
            "host": {"latency": 2e-5, "bandwidth": 2e9},
            "rack": {"latency": 1e-4, "bandwidth": 1.2e7},
        },
        "gradient_bytes": 44_700_000,
        "whole_seconds": 3.6,
        "compressions": {
            "topk": each | {"on": True, "gained_seconds": 3.5},
            "bf16": each | {"on": False, "gained_seconds": -0.003},
        },
    }
    assert message(report) == (
        "links: 20 µs and 2,000 MB/s within a host; 100 µs and 12 MB/s between hosts. An "
        "all-reduce of 44.7 MB of gradients takes about 3.6 s per step; estimated effect of "
        "compression per step: topk (in use) saves 3.5 s, bf16 costs 3 ms"
    )


@pytest.fixture(scope="module")
def dense_accuracy(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> float:
    return accuracy(ranks, tmp_path_factory.mktemp("dense"), {})


def accuracy(ranks: RankServer, folder: Path, sync: dict[str, Any]) -> float:
    """On validation digits, after epochs enough for all of them to be learned."""
    spec = digits(2, sync, steps=None, epochs=12, optimizer="sgd", learning_rate=0.1)
    spec["task"]["params"] = {"hidden": [64]}
    attempt = ranks.run(folder, spec)
    assert attempt.codes == [0, 0], attempt.stderr()
    return float(attempt.event("completed")["metrics"]["eval_accuracy"])


@pytest.mark.parametrize("compression", LOSSY)
def test_topk_one_percent_learns_equally_well(
    ranks: RankServer, tmp_path: Path, dense_accuracy: float, compression: str
) -> None:
    """benchmarks/engine/convergence.py is the same on a larger scale."""
    found = accuracy(ranks, tmp_path, {"compression": compression, "ratio": 0.01})
    assert dense_accuracy > 0.94
    assert found >= dense_accuracy - 0.01
