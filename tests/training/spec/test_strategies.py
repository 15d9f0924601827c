"""Strategy `auto`: the options allowed beside it, and the specs that a plan makes of it."""

from typing import Any, get_args

import pytest

from trainhall.parallelism.degrees import StrategyName
from trainhall.training.spec import JobSpec, NotPlannedError, SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.strategies import candidates, with_mesh, with_parallelism


def auto(workers: int = 4, **more: Any) -> JobSpec:
    return validate_spec(
        {
            "name": "test",
            "task": {"name": "digits"},
            "resources": {"workers": workers},
            "training": {"steps": 1, "global_batch_size": 64, **more.pop("training", {})},
            "parallelism": {"strategy": "auto", **more.pop("parallelism", {})},
            **more,
        }
    )


@pytest.mark.parametrize(
    ("more", "field", "message"),
    [
        ({"parallelism": {"shard": 2}}, "parallelism.shard", "auto chooses the degrees"),
        ({"parallelism": {"servers": 1}}, "parallelism.servers", "auto chooses the degrees"),
        (
            {"task": None, "script": {"path": "/a.py"}},
            "parallelism.strategy",
            "auto is for tasks",
        ),
        (
            {"training": {"global_batch_size": 7, "gradient_accumulation": 2}},
            "training.global_batch_size",
            "batch size 7 is not divisible by 2 (2 accumulation steps)",
        ),
    ],
)
def test_auto_strategy_refuses_fixed_options(
    more: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        auto(**more)
    (problem,) = refused.value.problems
    assert problem.field == field
    assert message in problem.message


def test_auto_strategy_properties_are_unknown_before_planning() -> None:
    spec = auto()
    assert spec.is_auto
    for ask in (lambda: spec.strategy, lambda: spec.degrees):
        with pytest.raises(NotPlannedError, match="no plan was made yet"):
            ask()


def test_every_mesh_is_a_candidate_once() -> None:
    found = [(strategy, tuple(mesh.items())) for strategy, mesh in candidates(8)]
    assert len(found) == len(set(found))
    assert {strategy for strategy, _ in found} == set(get_args(StrategyName))
    assert ("pipeline", (("pipeline", 2), ("data", 2), ("tensor", 2))) in found
    assert [dict(m) for s, m in found if s == "parameter_server"] == [
        {"data": 7, "servers": 1}, {"data": 4, "servers": 4},
    ]  # fmt: skip
    assert [s for s, _ in candidates(1)] == ["ddp"]


def test_planned_choice_replaces_auto_only() -> None:
    spec = auto(parallelism={"reshard_after_forward": False, "sequence_parallel": True})
    chosen = with_parallelism(spec, 4, {"strategy": "fsdp", "shard": 4, "data": 1, "tensor": 1})
    assert chosen.degrees.shard == 4
    assert not chosen.parallelism.reshard_after_forward
    assert not chosen.parallelism.sequence_parallel, "without `tensor` it would be refused"
    stored = validate_spec(spec.model_dump(mode="json"))
    assert with_parallelism(stored, 4, {"strategy": "ddp"}).degrees.data == 4


def test_only_ddp_is_reproducible() -> None:
    spec = auto(training={"reproducible": True})
    allowed = set()
    for strategy, mesh in candidates(4):
        try:
            with_mesh(spec, 4, strategy, mesh)
        except SpecError:
            continue
        allowed.add(strategy)
    assert allowed == {"ddp"}
