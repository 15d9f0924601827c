"""The rank that the others wait for."""

from typing import Any

import numpy as np

from trainhall.training.loop.stragglers import Stragglers, have_equal_work
from trainhall.training.spec.parse import validate_spec


def test_straggler_ratio_uses_the_median() -> None:
    slowest = Stragglers().add(np.array([1.0, 1.1, 2.0, 0.9]))
    assert slowest is not None
    assert slowest.rank == 2
    assert slowest.ratio == 2.0 / 1.05


def test_straggler_ratio_is_smoothed() -> None:
    once, always = Stragglers(), Stragglers()
    even, slow = np.ones(4), np.array([1.0, 1.0, 1.0, 2.0])
    for _ in range(10):
        once.add(even)
        always.add(slow)
    moment, lasting = once.add(slow), always.add(even)
    assert moment is not None
    assert lasting is not None
    assert moment.ratio < 1.25 < lasting.ratio


def test_straggler_ratio_restarts_after_resize() -> None:
    stragglers = Stragglers()
    stragglers.add(np.array([1.0, 9.0]))
    after = stragglers.add(np.array([2.0, 1.0, 1.0]))
    assert after is not None
    assert (after.rank, after.ratio) == (0, 2.0)
    assert stragglers.add(np.array([1.0])) is None
    assert stragglers.add(np.zeros(2)) is None


def test_only_ranks_with_equal_work_are_compared() -> None:
    def equal(ranks: int, parallelism: str = "ddp", **training: object) -> bool:
        spec = {
            "name": "a",
            "task": {"name": "digits"},
            "resources": {"workers": ranks},
            "parallelism": {"strategy": parallelism},
            "training": {"global_batch_size": 48, **training},
        }
        return have_equal_work(validate_spec(spec), ranks)

    assert equal(3)
    assert not equal(2, "pipeline")
    shards: dict[str, Any] = {"reproducible": True, "logical_shards": 4}
    assert equal(2, **shards)
    assert not equal(3, **shards)
