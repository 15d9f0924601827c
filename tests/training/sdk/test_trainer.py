"""`Trainer` against the same steps written by hand, alone and in a group of ranks."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer
from support.ranks.trainer import STEPS, loss_fn, make_batch, make_model
from torch import nn

from trainhall.training.gradients.capture import Gradient
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.sdk.trainer import StepResult, Trainer


@pytest.mark.parametrize("rounds", [1, 3])
def test_trainer_steps_match_a_plain_loop(rounds: int) -> None:
    by_hand, ours = make_model(), make_model()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    trainer = Trainer(
        ours, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu",
        gradient_accumulation=rounds, gradient_clip=0.5,
    )  # fmt: skip
    for step in range(1, 6):
        batch = make_batch(step)
        optimizer.zero_grad()
        loss = loss_fn(by_hand, batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
        optimizer.step()
        result = trainer.train_step(batch, loss_fn)
        assert (type(result), result.step) == (StepResult, step)
        torch.testing.assert_close(result.loss, loss.detach())
        torch.testing.assert_close(result.gradient_norm, norm)
    for a, b in zip(by_hand.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_trainer_resumes_from_its_state() -> None:
    def make() -> Trainer:
        return Trainer(make_model(), optimizer=torch.optim.AdamW, precision="bf16", device="cpu")

    whole, first, second = make(), make(), make()
    for step in range(1, 7):
        whole.train_step(make_batch(step), loss_fn)
    for step in range(1, 4):
        first.train_step(make_batch(step), loss_fn)
    second.load_state_dict(first.state_dict())
    for step in range(4, 7):
        second.train_step(make_batch(step), loss_fn)
    assert second.step == 6
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strategy": "dpp"}, "strategy must be one of ddp; 'dpp' is not"),
        ({"precision": "fp8"}, "precision must be one of fp32, bf16, fp16"),
        ({"gradient_accumulation": 0}, "gradient_accumulation must be 1 or more, not 0"),
        ({"gradient_clip": 0}, "gradient_clip must be a finite number above 0, not 0"),
        ({"gradient_clip": float("nan")}, "gradient_clip must be a finite number above 0"),
        ({"gradient_clip": "1"}, "gradient_clip must be a finite number above 0, not '1'"),
        ({"gradient_sync": {"bucket_mb": -1}}, "gradient_sync: bucket_mb must be more than 0"),
        ({"gradient_sync": {"algorithm": "rings"}}, "did you mean ring?"),
        ({"gradient_sync": {"algoritm": "ring"}}, "gradient_sync: algoritm unknown key"),
        (
            {"gradient_sync": {"algorithm": "tree", "compression": "topk"}},
            "gradient_sync.algorithm: 'tree' cannot carry topk, .* only native and ring can",
        ),
        ({"gradient_sync": {"measure_links": True}}, "measure_links is for built-in tasks"),
        (
            {"gradient_sync": {"ratio": 0.1}},
            "gradient_sync.ratio: 0.1 is for compression topk and powersgd; leave it out",
        ),
        (
            {"precision": "fp16", "gradient_sync": {"compression": "topk"}},
            "gradient_sync.compression: 'topk' keeps .* use precision bf16 or fp32, or",
        ),
    ],
)
def test_trainer_errors_name_allowed_options(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Trainer(make_model(), optimizer=torch.optim.AdamW, device="cpu", **options)


def test_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        Trainer(nn.Tanh(), optimizer=torch.optim.AdamW, device="cpu")


def test_batch_must_divide() -> None:
    trainer = Trainer(
        make_model(), optimizer=torch.optim.AdamW, device="cpu", gradient_accumulation=5
    )
    with pytest.raises(ValueError, match="cannot be cut into 5 equal parts"):
        trainer.train_step(make_batch(1), loss_fn)


@pytest.mark.parametrize("function", ["train", "train_over_a_ring"])
def test_trainer_ranks_match_a_single_rank(
    ranks: RankServer, tmp_path: Path, function: str
) -> None:
    assert ranks.call(f"support.ranks.trainer:{function}", 2, tmp_path) == [0, 0]
    alone = Trainer(make_model(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu")
    for step in range(1, STEPS + 1):
        alone.train_step(make_batch(step), loss_fn)
    for rank in range(2):
        weights = torch.load(tmp_path / f"{rank}.pt")
        for a, b in zip(alone.plain_model.parameters(), weights, strict=True):
            torch.testing.assert_close(a.detach(), b)


@pytest.mark.parametrize("function", ["train_on", "train_on_with_nccl_alone"])
def test_trainer_saves_unsent_gradients_on_request(
    ranks: RankServer, tmp_path: Path, function: str
) -> None:
    codes = ranks.call(f"support.ranks.trainer:{function}", 2, tmp_path)
    assert codes == [0, 0], AttemptFolder(tmp_path).stderr(0).read_text()
    whole, in_two = torch.load(tmp_path / "0.pt")
    for a, b in zip(whole, in_two, strict=True):
        assert torch.equal(a, b)
    # One process alone, which compresses nothing, adds to its next gradient what both had left.
    saved = torch.load(tmp_path / "saved.pt")
    residuals = saved["gradient_sync"]["residual"]
    assert sorted(residuals) == [0, 1]
    alone, without = (
        Trainer(make_model(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu")
        for _ in range(2)
    )
    alone.load_state_dict(saved)
    without.load_state_dict({name: part for name, part in saved.items() if name != "gradient_sync"})
    for trainer in (alone, without):
        trainer.train_step(make_batch(STEPS + 1), loss_fn)
    named = zip(alone.plain_model.named_parameters(), without.plain_model.parameters(), strict=True)
    for (name, a), b in named:
        left = residuals[0][name] + residuals[1][name]
        torch.testing.assert_close(a.detach(), b.detach() - 0.1 * left)


def test_trainer_reports_accumulated_gradients() -> None:
    trainer = Trainer(
        make_model(), optimizer=torch.optim.AdamW, device="cpu", gradient_accumulation=2
    )
    recorded: list[tuple[int, str, float, int]] = []

    def record(gradient: Gradient) -> None:
        counted = sum(gradient.histogram().counts)
        recorded.append((gradient.step, gradient.name, float(gradient.norm), counted))

    trainer.train_step(make_batch(1), loss_fn)
    with trainer.watch_gradients(record):
        result = trainer.train_step(make_batch(2), loss_fn)
    trainer.train_step(make_batch(3), loss_fn)
    # Twice each: both micro-batches. The layer behind the loss comes first.
    assert [step for step, *_ in recorded] == [2] * 8
    first, second = recorded[:4], recorded[4:]
    assert sorted(name for _, name, *_ in first) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert {name for _, name, *_ in first[:2]} == {"2.bias", "2.weight"}
    norms = {name: norm for _, name, norm, _ in second}
    assert math.hypot(*norms.values()) == pytest.approx(float(result.gradient_norm), rel=1e-5)
    assert {name: counted for _, name, _, counted in second}["0.weight"] == 32
