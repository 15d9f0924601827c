"""Batches of any form are cut."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from trainhall.parallelism.pipelining.batches import pieces


def test_batches_of_any_form_are_cut() -> None:
    first, second = pieces(
        (torch.arange(4), {"a": torch.arange(8).view(4, 2), "b": 1}), 2, "rounds"
    )
    assert first[0].tolist() == [0, 1]
    assert second[1]["a"].tolist() == [[4, 5], [6, 7]]
    assert second[1]["b"] == 1


class _Named(NamedTuple):
    x: Tensor
    rest: list[Any]


def test_named_batches_are_split_and_scalars_shared() -> None:
    batch = _Named(torch.arange(4), [torch.tensor(0.5), "text", (torch.arange(8).view(4, 2),)])
    first, second = pieces(batch, 2, "rounds")
    assert isinstance(first, _Named)
    assert isinstance(second.rest[2], tuple)
    assert (first.x.tolist(), second.x.tolist()) == ([0, 1], [2, 3])
    assert second.rest[2][0].tolist() == [[4, 5], [6, 7]]
    assert [float(each.rest[0]) for each in (first, second)] == [0.5, 0.5]
    assert first.rest[1] == "text"


@pytest.mark.parametrize("size", [2, 4])
def test_indivisible_batch_is_refused_with_shape(size: int) -> None:
    with pytest.raises(ValueError, match=rf"shape \[{size}, 3\], .* 3 equal parts .*\(rounds\)"):
        pieces({"x": torch.zeros(6, 3), "weights": torch.zeros(size, 3)}, 3, "rounds")
