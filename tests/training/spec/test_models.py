"""The declarations of the built-in models, made without torch, match the models."""

import pytest
from torch import nn

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec import models
from trainhall.training.spec.models import Shape
from trainhall.training.spec.tasks import TASK_PARAMS, TaskParams
from trainhall.training.tasks.base import mlp
from trainhall.training.tasks.gpt import GPT
from trainhall.training.tasks.images import resnet18, small_cnn

SHAPE = Shape(layers=3, heads=2, width=8, context=4)
CASES = {
    "mlp": (mlp([5, 6, 7, 3]), models.mlp([6, 7])),
    "linear": (mlp([5, 3]), models.mlp([])),
    "mlp with dropout": (mlp([5, 6, 7, 3], dropout=0.1), models.mlp([6, 7], dropout=True)),
    "cnn": (small_cnn(1, 10, (4, 8), grid=2), models.cnn((4, 8))),
    "resnet18": (resnet18(10, small_images=True), models.resnet18()),
    "gpt": (GPT(SHAPE), models.gpt(SHAPE)),
}


@pytest.mark.parametrize("name", CASES)
def test_declared_layers_cover_the_model_in_order(name: str) -> None:
    model, declaration = CASES[name]
    modules = [[model.get_submodule(n) for n in layer] for layer in declaration.layers]
    parameters = [{id(p) for m in layer for p in m.parameters()} for layer in modules]
    assert all(parameters)
    assert set().union(*parameters) == {id(p) for p in model.parameters()}
    order = [id(m) for m in model.modules()]
    positions = [order.index(id(m)) for layer in modules for m in layer]
    assert positions == sorted(positions)


@pytest.mark.parametrize("name", CASES)
def test_splits_are_pairs_of_linear_layers(name: str) -> None:
    model, declaration = CASES[name]
    for split in declaration.splits:
        column, row = (model.get_submodule(n) for n in (split.column, split.row))
        assert isinstance(column, nn.Linear)
        assert isinstance(row, nn.Linear)
        assert column.out_features % split.parts == row.in_features % split.parts == 0


def test_sequences_pass_every_module_of_the_decoder() -> None:
    sequences = models.gpt(SHAPE).sequences
    assert sequences is not None
    named = {sequences.embedding, *sequences.norms, *sequences.mixers, sequences.head}
    apart = {n for n, m in GPT(SHAPE).named_modules() if n.count(".") <= 2 and "dropout" not in n}
    inner = {n for n in apart if any(n.startswith(f"{m}.") for m in named)}
    assert apart - inner - {"", "blocks", "blocks.0", "blocks.1", "blocks.2"} == named


def test_mnist_cnn_declares_its_layers() -> None:
    model = nn.Sequential(nn.Flatten(), mlp([4, models.MNIST_HIDDEN, 2]))
    declaration = models.declaration_of(TASK_PARAMS["mnist"](root="/", model="mlp"))  # type: ignore[call-arg]
    for layer in declaration.layers:
        for name in layer:
            model.get_submodule(name)


@pytest.mark.parametrize("name", TASK_PARAMS)
def test_every_built_in_model_is_declared(name: str) -> None:
    kind = TASK_PARAMS[name]
    params = kind.model_validate({"root": "/data"} if "root" in kind.model_fields else {})
    assert models.declaration_of(params).layers


def test_unknown_models_have_no_declaration() -> None:
    assert models.declaration_of(TaskParams()) == Declaration()
