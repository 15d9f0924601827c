"""Models of which some layers are not trained, cut into stages."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import RankServer

PIPELINE = {"strategy": "pipeline"}


def job(
    workers: int,
    frozen: list[int],
    parallelism: dict[str, Any],
    *,
    tied: bool = False,
    **training: Any,
) -> Any:
    return {
        "task": {"name": "support.tasks.own:Frozen", "params": {"frozen": frozen, "tied": tied}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": 6, "global_batch_size": 16, "gradient_clip": 0.5, **training},
    }


@pytest.mark.parametrize(
    ("workers", "frozen", "parallelism", "precision", "tied"),
    [
        pytest.param(2, [0, 1], PIPELINE, "fp32", False, id="first stage"),
        pytest.param(2, [2, 3], PIPELINE, "fp16", False, id="last stage, fp16"),
        pytest.param(4, [1], PIPELINE, "fp32", False, id="a stage between"),
        pytest.param(4, [1], PIPELINE, "fp32", True, id="a weight of two stages"),
        pytest.param(2, [0], {**PIPELINE, "schedule": "zbv"}, "fp32", False, id="zbv"),
        pytest.param(
            2, [0, 2], {**PIPELINE, "schedule": "interleaved_zero_bubble"}, "fp32", False,
            id="interleaved zero bubble",
        ),
        pytest.param(4, [0, 1], {**PIPELINE, "data": 2}, "fp32", False, id="first stage × data"),
    ],
)  # fmt: skip
def test_frozen_stage_does_not_block_others(
    ranks: RankServer,
    tmp_path: Path,
    workers: int,
    frozen: list[int],
    parallelism: dict[str, Any],
    precision: str,
    tied: bool,
) -> None:
    training: dict[str, Any] = {"precision": precision, "tied": tied}
    cut = ranks.run(tmp_path / "cut", job(workers, frozen, parallelism, **training))
    assert cut.codes == [0] * workers, cut.stderr()
    whole = ranks.run(tmp_path / "whole", job(1, frozen, {}, **training))
    for name in ("loss", "gradient_norm"):
        (values, expected) = ([value for _, value in each.curve(name)] for each in (cut, whole))
        assert values == pytest.approx(expected, rel=1e-5 if precision == "fp32" else 1e-3), name
