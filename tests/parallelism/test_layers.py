"""Layers that are computed again give the same numbers; what is compiled is what gains."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainhall.parallelism import layers
from trainhall.parallelism.choose import StrategyConfig, compiles_whole
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import Degrees, DegreesError, StrategyName

DECLARATION = Declaration(layers=(("0",), ("1", "2")))


def build() -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    second = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    return nn.Sequential(first, second, nn.Linear(8, 2))


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Two micro-batches, then their backward passes, as some schedules have it."""
    torch.manual_seed(1)
    losses = [model(torch.randn(6, 4)).square().mean() for _ in range(2)]
    for loss in losses:
        loss.backward()
    gradients = {f"{name}.grad": p.grad for name, p in model.named_parameters()}
    return {
        **model.state_dict(),
        **{name: g for name, g in gradients.items() if g is not None},
        "random": torch.get_rng_state(),
    }


def test_recomputation_is_exact() -> None:
    plain, again = build(), build()
    layers.recompute(again, DECLARATION)
    runs = []
    count = again.get_submodule("0.0").register_forward_hook(lambda *_: runs.append(1))
    expected, found = trained(plain), trained(again)
    count.remove()
    assert len(runs) == 4
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_recomputation_needs_declared_layers() -> None:
    with pytest.raises(DegreesError, match=r"training\.activation_checkpointing acts on layers"):
        layers.recompute(build(), Declaration())


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of its own code torch's compiler has several
def test_each_size_of_layers_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []

    def record(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        compiled.append(all(isinstance(each, Tensor) for each in inputs))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=record))
    widths = range(2, 14)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b)) for a, b in pairwise(widths))
    )
    layers.compile_layers(model, Declaration(layers=tuple((str(i),) for i in range(len(model)))))
    x = torch.randn(6, 2)
    model(x).sum().backward()
    assert compiled == [True] * len(model), "no graph takes a size as its input"
    with torch.no_grad():
        model.eval()(x)
    assert len(compiled) == 2 * len(model)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of its own code torch's compiler has several
def test_single_operators_are_compiled_where_padding_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[int] = []

    def record(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        compiled.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=record))
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 13))
    declared = Declaration(layers=(("0", "1"), ("2",)))
    layers.compile_layers(model, declared)
    model(torch.randn(6, 4))
    assert compiled == [1], "the product with 13 columns"
    compiled.clear()
    whole = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 13))
    layers.compile_whole(whole)
    whole(torch.randn(6, 4))
    assert compiled == [3], "one graph of all"


@pytest.mark.parametrize(
    ("strategy", "degrees", "options", "whole"),
    [
        ("ddp", Degrees(), {}, True),
        ("ddp", Degrees(), {"recompute": True}, False),
        ("ddp", Degrees(data=2), {}, False),
        ("parameter_server", Degrees(data=2), {}, True),
        ("fsdp", Degrees(), {}, False),
    ],
)
def test_model_is_compiled_whole_where_nothing_acts_between_layers(
    strategy: StrategyName, degrees: Degrees, options: dict[str, Any], whole: bool
) -> None:
    config = StrategyConfig(
        strategy=strategy, degrees=degrees, bucket_mb=25, reshard_after_forward=True,
        sequence_parallel=False, schedule="gpipe", microbatches=1, compile=True, **options,
    )  # fmt: skip
    assert compiles_whole(config, DECLARATION) is whole
    undeclared = strategy == "ddp" and not options
    assert compiles_whole(config, Declaration()) is (whole or undeclared)


@pytest.mark.processes
def test_missing_compiler_is_reported_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("/no/such/compiler",))
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(layers.NoCompilerError, match=r"training\.compile needs a C\+\+ compiler"):
        layers.compile_layers(build(), DECLARATION)
