"""Optimizers have their state from the start, whatever their first steps are."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainhall.training.optim.optimizers import build_optimizer, lacking_state
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.spec import Precision, TrainingSpec

OPTIMIZERS = ["sgd", "adamw"]


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """What is allocated and not written to holds NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def spec(optimizer: str) -> TrainingSpec:
    return TrainingSpec(steps=4, optimizer=optimizer, learning_rate=0.1, weight_decay=0.1)


def trained_in_fp16(optimizer: str, *, overflows: bool) -> list[Tensor]:
    """The weights after two steps, and maybe a skipped one before them."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    built = build_optimizer(model.parameters(), spec(optimizer))
    precision = MixedPrecision(Precision.FP16, torch.device("cpu"))
    for step in range(0 if overflows else 1, 3):
        with precision.autocast():
            loss = model(torch.ones(2, 8)).float().square().mean()
        precision.scale(loss if step else loss * torch.inf).backward()
        precision.unscale(built)
        precision.step(built)
        built.zero_grad()
    assert precision.state()["scale"] == (2**15 if overflows else 2**16)
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.usefixtures("poisoned_memory")
def test_skipped_first_step_leaves_no_state(optimizer: str) -> None:
    left_out = trained_in_fp16(optimizer, overflows=True)
    torch.testing.assert_close(left_out, trained_in_fp16(optimizer, overflows=False))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_accepts_late_first_gradient(optimizer: str) -> None:
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(2)])
    early, late = model.parameters()
    built = build_optimizer([early, late], spec(optimizer))
    before = [p.detach().clone() for p in (early, late)]
    for parameters in ([early], [early, late]):
        assert torch.equal(late, before[1])
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        built.step()
        built.zero_grad()
    assert not torch.equal(late, before[1])
    # It is its first step, whatever the others have behind them.
    (alone,) = fresh = [nn.Parameter(before[1].clone())]
    one = build_optimizer(fresh, spec(optimizer))
    alone.grad = torch.ones_like(alone)
    one.step()
    assert torch.equal(alone, late)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_state_initialisation_keeps_weights(optimizer: str) -> None:
    model = nn.Linear(3, 2)
    before = [p.detach().clone() for p in model.parameters()]
    built = build_optimizer(model.parameters(), spec(optimizer))
    assert built.param_groups[0]["lr"] == 0.1
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None
        assert built.state[parameter]
        assert not any(tensor.any() for tensor in built.state[parameter].values())


@pytest.mark.parametrize("momentum", [0.9, 0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_state_matches_torch(optimizer: str, momentum: float) -> None:
    conv: Any = nn.Conv2d(2, 3, 2)
    model: nn.Module = conv.to(memory_format=torch.channels_last).to(torch.float64)
    options = spec(optimizer).model_copy(update={"momentum": momentum})
    ours, theirs = (build_optimizer(model.parameters(), options) for _ in range(2))
    theirs.state.clear()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    theirs.step()
    for parameter in model.parameters():
        forms = [
            {
                key: (tensor.shape, tensor.stride(), tensor.dtype)
                for key, tensor in built.state[parameter].items()
                if tensor is not None
            }
            for built in (ours, theirs)
        ]
        assert forms[0] == forms[1]


def test_checkpoint_may_lack_whole_parameters_only() -> None:
    state = {"a.b.step", "a.b.exp_avg", "c.step", "c.exp_avg"}
    assert lacking_state(state, state) == set()
    assert lacking_state(state, {"a.b.step", "a.b.exp_avg"}) == {"c.step", "c.exp_avg"}
    # Another optimizer, or a damaged state, is for others to refuse.
    assert lacking_state(state, {"a.b.step", "a.b.exp_avg", "c.step"}) == set()
    assert lacking_state(state, {"a.b.momentum_buffer", "c.momentum_buffer"}) == set()
    assert lacking_state(state, []) == set()
