"""Degrees make a mesh of the workers, or are refused with the arithmetic."""

from typing import Any

import pytest

from trainhall.parallelism.degrees import Degrees, DegreesError, solve


@pytest.mark.parametrize(
    ("strategy", "workers", "given", "degrees"),
    [
        ("ddp", 4, {}, Degrees(data=4)),
        ("ddp", 4, {"data": 4, "shard": 1}, Degrees(data=4)),
        ("fsdp", 4, {}, Degrees(shard=4)),
        ("fsdp", 6, {"data": 2}, Degrees(data=2, shard=3)),
        ("fsdp", 8, {"data": 2, "tensor": 2}, Degrees(data=2, shard=2, tensor=2)),
        ("tensor", 4, {}, Degrees(tensor=4)),
        ("tensor", 4, {"tensor": 2}, Degrees(data=2, tensor=2)),
        ("fsdp", 4, {"shard": 2}, Degrees(data=2, shard=2)),
        ("tensor", 4, {"data": 2}, Degrees(data=2, tensor=2)),
        ("fsdp", 6, {"data": 2, "shard": 3}, Degrees(data=2, shard=3)),
    ],
)
def test_omitted_degrees_are_derived(
    strategy: Any, workers: int, given: dict[str, int | None], degrees: Degrees
) -> None:
    assert solve(strategy, workers, given) == degrees
    assert degrees.world_size == workers


@pytest.mark.parametrize(
    ("strategy", "workers", "given", "field", "words"),
    [
        ("ddp", 4, {"data": 2}, "data", "data 2 must equal the number of workers, 4"),
        ("ddp", 4, {"shard": 2}, "shard", "strategy ddp has no degree `shard`, only data"),
        ("fsdp", 4, {"data": 3}, "data", "the number of workers, 4, is not divisible by data 3"),
        (
            "fsdp",
            4,
            {"data": 4, "shard": 2},
            "data",
            "the number of workers, 4, is not divisible by shard 2 × data 4 = 8",
        ),
        (
            "fsdp",
            8,
            {"data": 1, "shard": 2, "tensor": 2},
            "shard",
            "shard 2 × data 1 × tensor 2 = 4 must equal the number of workers, 8",
        ),
    ],
)
def test_refusal_shows_the_arithmetic(
    strategy: Any, workers: int, given: dict[str, int | None], field: str, words: str
) -> None:
    with pytest.raises(DegreesError) as caught:
        solve(strategy, workers, given)
    assert caught.value.field == field
    assert words in str(caught.value)
