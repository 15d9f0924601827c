"""Losses called at both ends of a pipeline equal those of one rank, or are refused."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import RankServer

PIECES = [
    pytest.param(2, {"strategy": "pipeline", "microbatches": 4}, id="pipeline"),
    pytest.param(2, {"strategy": "pipeline", "schedule": "zbv", "microbatches": 4}, id="zbv"),
    pytest.param(2, {"strategy": "model"}, id="model"),
]


def job(
    name: str, workers: int, parallelism: dict[str, Any], params: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "task": {"name": f"support.tasks.own:{name}", "params": params or {}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": 3, "global_batch_size": 16, "optimizer": "sgd"},
    }


def four_layers(parallelism: dict[str, Any]) -> dict[str, Any]:
    """What a model needs of which each rank holds two stages."""
    return {"layers": 4} if parallelism.get("schedule") == "zbv" else {}


@pytest.mark.parametrize(("workers", "parallelism"), PIECES)
def test_pipeline_refuses_loss_calling_model_twice(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    params = four_layers(parallelism)
    attempt = ranks.run(tmp_path, job("Contrasted", workers, parallelism, params))
    assert attempt.codes == [1] * workers
    failures = [e["data"] for rank in range(workers) for e in attempt.events(rank, kind="failure")]
    (failure,) = [data for data in failures if data["final"]]
    assert "the loss calls the model more than once" in failure["message"]
    assert "torch.cat" in failure["message"]


@pytest.mark.parametrize(("workers", "parallelism"), PIECES)
def test_pipeline_applies_training_only_input_changes(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    params = four_layers(parallelism)
    cut = ranks.run(tmp_path / "cut", job("Augmented", workers, parallelism, params))
    assert cut.codes == [0] * workers, cut.stderr()
    whole = ranks.run(tmp_path / "whole", job("Augmented", 1, {}, params))
    for name in ("loss", "gradient_norm", "eval_loss"):
        (values, expected) = ([value for _, value in each.curve(name)] for each in (cut, whole))
        assert values == pytest.approx(expected, rel=1e-5), name


def test_micro_batches_that_differ_in_shape_are_refused(ranks: RankServer, tmp_path: Path) -> None:
    parallelism = {"strategy": "pipeline", "microbatches": 4}
    attempt = ranks.run(tmp_path, job("Chosen", 2, parallelism))
    assert attempt.codes == [1, 1]
    failure = attempt.event("failure", 0)
    assert failure["final"]
    assert "gives the model micro-batches of different shapes, [" in failure["message"]


@pytest.mark.parametrize(
    ("workers", "parallelism"),
    [*PIECES, pytest.param(4, {"strategy": "pipeline", "data": 2}, id="pipeline × data")],
)
def test_pipeline_ends_draw_equal_random_numbers(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    params = {"folder": str(tmp_path), **four_layers(parallelism)}
    spec = job("Drawn", workers, parallelism, params)
    spec["training"] |= {"gradient_accumulation": 2}
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes == [0] * workers, attempt.stderr()
    # Ranks 0 and 1 are the ends of the first pipeline; with zbv rank 0 holds both.
    both = parallelism.get("schedule") == "zbv"
    asked = range(1) if both else range(workers)
    drawn = [Path(tmp_path, str(rank)).read_text().splitlines() for rank in asked]
    microbatches = parallelism.get("microbatches", 1 if parallelism["strategy"] == "model" else 2)
    for first in asked[::2]:
        numbers = set(drawn[first])
        assert len(numbers) == 3 * 2 * microbatches, "steps, rounds and micro-batches"
        if not both:
            assert len(drawn[first]) == len(numbers)
            assert set(drawn[first + 1]) == numbers
    if workers == 4:
        assert not set(drawn[0]) & set(drawn[2])
