"""Models are cut into whole stages, and the pass that learns shapes changes nothing."""

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import DegreesError
from trainhall.parallelism.pipelining.stages import (
    KnownOutput,
    Layers,
    cut,
    inputs_of,
    keep_only,
    loss_given,
)

DECLARATION = Declaration(layers=(("0", "1"), ("2",), ("3", "4"), ("5",)))


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 50),
        nn.ReLU(),
        nn.Linear(50, 5),
        nn.Linear(5, 5),
        nn.Dropout(),
        nn.Linear(5, 2),
    )


@pytest.mark.parametrize(
    ("number", "stages"),
    [
        (1, [["0", "1", "2", "3", "4", "5"]]),
        (2, [["0", "1"], ["2", "3", "4", "5"]]),
        (4, [["0", "1"], ["2"], ["3", "4"], ["5"]]),
    ],
)
def test_stages_have_similar_sizes(number: int, stages: list[list[str]]) -> None:
    assert cut(build(), DECLARATION, number) == stages


def test_no_stage_is_empty_however_uneven_the_layers() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 999), nn.Linear(999, 1))
    declaration = Declaration(layers=(("0",), ("1",), ("2",), ("3",)))
    for number in range(1, 5):
        stages = cut(model, declaration, number)
        assert all(stages)
        assert list(chain(*stages)) == ["0", "1", "2", "3"]


def test_weight_outside_the_layers_is_named() -> None:
    with pytest.raises(DegreesError, match=r"5\.weight is in none of the layers"):
        cut(build(), Declaration(layers=DECLARATION.layers[:-1]), 2)


def test_stages_keep_parameter_names() -> None:
    model = nn.Sequential(build(), build())
    before = model.state_dict()
    keep_only(model, ["0.2", "1.5"])
    after = model.state_dict()
    assert list(after) == ["0.2.weight", "0.2.bias", "1.5.weight", "1.5.bias"]
    assert all(torch.equal(after[name], before[name]) for name in after)


def test_shape_pass_keeps_random_state_and_buffers() -> None:
    layers = Layers(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()), ["0", "1"])
    before = [buffer.clone() for buffer in layers.buffers()]
    state = torch.get_rng_state()
    output = layers(torch.randn(8, 3, generator=torch.Generator().manual_seed(1)))
    output.sum().backward()  # schedules rehearse that too
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before, layers.buffers(), strict=True))
    layers.trains = True
    layers(torch.ones(8, 3))
    assert not torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(before[0], next(layers.buffers()))


def test_stand_in_finds_the_models_inputs() -> None:
    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        try:
            return model(batch["x"]).sum(), ()
        except Exception as error:
            raise AssertionError("the question was taken for a failure") from error

    batch = {"x": torch.arange(6.0), "y": "text"}
    (seen,) = inputs_of(loss, batch, training=True)
    assert seen is batch["x"]
    assert loss(KnownOutput(torch.ones(2)), batch)[0] == 2
    with pytest.raises(TypeError, match="never calls the model"):
        inputs_of(lambda model, batch: (torch.zeros(()), ()), batch, training=True)


@pytest.mark.parametrize("training", [True, False])
def test_stand_in_keeps_the_models_mode(training: bool) -> None:
    def loss(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return model(batch + 10 if model.training else batch).sum(), ()

    batch = torch.ones(2)
    (seen,) = inputs_of(loss, batch, training=training)
    assert torch.equal(seen, batch + 10 if training else batch)
    modes = []

    def noting(model: nn.Module, _: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        modes.append(model.training)
        return torch.zeros(()), ()

    loss_given(noting, batch, batch, training=training)
    assert modes == [training]


def test_stand_in_refuses_a_second_call() -> None:
    def twice(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        try:
            return (model(batch) - model(-batch)).square().mean(), ()
        except Exception as error:
            raise AssertionError("it was taken for the loss's own failure") from error

    with pytest.raises(DegreesError, match="calls the model more than once"):
        loss_given(twice, torch.ones(2), torch.ones(2), training=True)


def test_stand_in_refuses_access_to_weights() -> None:
    def penalty(model: nn.Module) -> Any:
        return sum(p.square().sum() for p in model.parameters())

    def behind(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return model(batch).mean() + penalty(model), ()

    def before(model: nn.Module, batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        added = penalty(model)
        return model(batch).mean() + added, ()

    batch = torch.ones(2)
    with pytest.raises(DegreesError, match="looks at the model's parameters"):
        loss_given(behind, batch, batch, training=True)
    with pytest.raises(DegreesError, match="looks at the model's parameters"):
        inputs_of(before, batch, training=True)
