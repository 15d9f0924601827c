"""The operations of a step, against counts by hand."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.parallelism.flops import forward_and_backward_flops
from trainhall.training.spec.models import Shape
from trainhall.training.tasks.base import mlp
from trainhall.training.tasks.gpt import GPT


def squares(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    return model(batch).float().square().mean(), ()


def test_flops_count_forward_twice_backward_four_times() -> None:
    model, batch = mlp([8, 16, 4]), torch.zeros(5, 8)
    forward = 2 * 5 * (8 * 16 + 16 * 4)
    assert forward_and_backward_flops(model, squares, batch) == 3 * forward - 2 * 5 * 8 * 16


def test_attention_counts_as_its_two_products() -> None:
    shape = Shape(layers=2, heads=4, width=32, context=16)
    sequences, positions, width = 3, 16, 32

    def loss(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        logits = model(batch)
        return functional.cross_entropy(logits.flatten(0, 1), batch.flatten()), ()

    counted = forward_and_backward_flops(
        GPT(shape), loss, torch.zeros(sequences, positions, dtype=torch.int64)
    )
    weights = shape.layers * 12 * width**2 + shape.vocabulary * width
    attention = shape.layers * 12 * positions * width
    assert counted == sequences * positions * (6 * weights + attention)


def test_flops_count_has_no_side_effects() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    batch, state = torch.ones(6, 4), torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward_and_backward_flops(model, squares, batch)
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
