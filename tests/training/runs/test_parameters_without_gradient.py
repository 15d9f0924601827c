"""Parameters that have no gradient where several ranks' gradients are averaged."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import RankServer


def job(workers: int, parallelism: dict[str, Any], without: list[int]) -> dict[str, Any]:
    return {
        "task": {"name": "support.tasks.own:LeftOut", "params": {"without": without}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": 3, "global_batch_size": 16},
    }


@pytest.mark.parametrize(
    ("workers", "parallelism", "without"),
    [
        pytest.param(2, {"strategy": "ddp"}, [1], id="ddp"),
        pytest.param(2, {"strategy": "fsdp"}, [1], id="fsdp"),
        pytest.param(2, {"strategy": "fsdp"}, [0, 1], id="fsdp, all ranks"),
        pytest.param(4, {"strategy": "fsdp", "data": 2}, [3], id="fsdp × data"),
        pytest.param(4, {"strategy": "fsdp", "tensor": 2}, [2, 3], id="fsdp × tensor"),
        pytest.param(2, {"strategy": "tensor", "tensor": 1, "data": 2}, [1], id="copies"),
        pytest.param(4, {"strategy": "tensor", "data": 2}, [2, 3], id="tensor × data"),
        pytest.param(4, {"strategy": "tensor", "data": 2}, [0, 1, 2, 3], id="tensor, all ranks"),
        pytest.param(4, {"strategy": "pipeline", "data": 2}, [2], id="pipeline × data"),
        pytest.param(4, {"strategy": "model", "data": 2}, [2], id="model × data"),
        pytest.param(4, {"strategy": "pipeline", "data": 2}, [0, 2], id="pipeline, all ranks"),
        pytest.param(3, {"strategy": "parameter_server", "data": 2}, [1], id="parameter server"),
    ],
)
def test_unused_parameter_on_one_rank_ends_run(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any], without: list[int]
) -> None:
    attempt = ranks.run(tmp_path, job(workers, parallelism, without))
    assert attempt.codes == [1] * workers
    for rank in without:
        failure = attempt.event("failure", rank)
        assert failure["type"] == "NoGradientError"
        assert failure["message"].startswith("0.beside.weight, 0.beside.bias got no gradient")
    assert not attempt.events(kind="stepped")


@pytest.mark.parametrize("without", [[1], [0, 1]])
@pytest.mark.parametrize("rounds", [1, 2])
def test_fsdp_names_layer_unused_on_one_rank(
    ranks: RankServer, tmp_path: Path, without: list[int], rounds: int
) -> None:
    params = {"without": without, "rounds": rounds}
    spec = job(2, {"strategy": "fsdp"}, without)
    spec["task"] = {"name": "support.tasks.own:LeftOutLayer", "params": params}
    spec["training"]["gradient_accumulation"] = rounds
    attempt = ranks.run(tmp_path, spec)
    for rank in without:
        failure = attempt.event("failure", rank)
        assert failure["type"] == "NoGradientError"
        assert failure["message"].startswith("1.weight, 1.bias got no gradient")
    assert not attempt.events(kind="stepped")


def test_fsdp_names_frozen_unused_layer(ranks: RankServer, tmp_path: Path) -> None:
    """Nothing is reduced of it, but all ranks gather its weights together: those of the next layer
    would be taken for them."""
    spec = job(2, {"strategy": "fsdp"}, [1])
    params = {"without": [1], "rounds": 1, "frozen": True}
    spec["task"] = {"name": "support.tasks.own:LeftOutLayer", "params": params}
    attempt = ranks.run(tmp_path, spec)
    failure = attempt.event("failure", 1)
    assert failure["type"] == "NoGradientError"
    assert failure["message"].startswith("1.weight, 1.bias were not used by this rank in a step")
    assert not attempt.events(kind="stepped")


@pytest.mark.parametrize(
    ("workers", "parallelism"),
    [
        pytest.param(1, {"strategy": "fsdp"}, id="one rank"),
        pytest.param(2, {"strategy": "tensor"}, id="tensor"),
        pytest.param(2, {"strategy": "pipeline"}, id="pipeline"),
    ],
)
def test_single_rank_allows_unused_parameters(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    attempt = ranks.run(tmp_path, job(workers, parallelism, list(range(workers))))
    assert attempt.codes == [0] * workers, attempt.stderr()
