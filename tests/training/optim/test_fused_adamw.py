"""The optimizer whose lists are made once does what torch's does, bit for bit."""

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import AdamW

from trainhall.training.optim.fused_adamw import FusedAdamW


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Pair:
    """The same model twice, one with each optimizer."""

    def __init__(self) -> None:
        self.models = [model(), model()]
        self.optimizers = [
            FusedAdamW(self.models[0].parameters(), lr=0.1, weight_decay=0.2),
            AdamW(self.models[1].parameters(), lr=0.1, weight_decay=0.2, fused=True),
        ]

    def gradients(self, number: int, *, none_for: int | None = None) -> None:
        for each in self.models:
            torch.manual_seed(number)
            for place, parameter in enumerate(each.parameters()):
                gradient = torch.randn_like(parameter)
                parameter.grad = None if place == none_for else gradient

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def check(self) -> None:
        for ours, theirs in zip(*(each.parameters() for each in self.models), strict=True):
            assert torch.equal(ours, theirs)
        ours_state, theirs_state = (each.state_dict()["state"] for each in self.optimizers)
        assert ours_state.keys() == theirs_state.keys()
        for place, state in theirs_state.items():
            for key, value in state.items():
                assert torch.equal(ours_state[place][key], value)


def test_steps_at_changing_rates() -> None:
    pair = Pair()
    for number in range(5):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + number)
        pair.gradients(number)
        pair.step()
        pair.check()


def test_parameter_without_a_gradient_is_left_alone() -> None:
    pair = Pair()
    for number, none_for in enumerate([1, None, 2, None]):
        pair.gradients(number, none_for=none_for)
        pair.step()
        pair.check()


def test_step_that_overflowed_is_left_out() -> None:
    pair = Pair()
    scalers = [GradScaler("cpu", init_scale=4.0, growth_interval=2) for _ in pair.optimizers]
    for number in range(6):
        pair.gradients(number)
        if number == 3:
            for each in pair.models:
                next(each.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        for scaler, optimizer in zip(scalers, pair.optimizers, strict=True):
            scaler.scale(torch.ones(()))
            scaler.step(optimizer)
            scaler.update()
        pair.check()
    assert scalers[0].get_scale() == scalers[1].get_scale()


def test_fused_adamw_continues_from_loaded_state() -> None:
    pair, before = Pair(), Pair()
    for number in range(3):
        before.gradients(number)
        before.step()
    pair.gradients(9)
    pair.step()
    for optimizer, saved in zip(pair.optimizers, before.optimizers, strict=True):
        optimizer.load_state_dict(saved.state_dict())
    for number in range(3, 5):
        pair.gradients(number)
        pair.step()
        pair.check()


def test_parameters_that_are_added_later_are_trained_too() -> None:
    pair = Pair()
    for number in range(4):
        if number == 2:
            for each, optimizer in zip(pair.models, pair.optimizers, strict=True):
                each.append(nn.Linear(2, 2))
                each[-1].load_state_dict(pair.models[0][-1].state_dict())
                optimizer.add_param_group({"params": list(each[-1].parameters())})
        pair.gradients(number)
        pair.step()
        pair.check()
