"""The norm of gradients that share memory."""

import pytest
import torch
from torch import Tensor

from trainhall.parallelism.data_parallel.buckets import Buckets


def views(flat: Tensor, *sizes: int) -> list[Tensor]:
    return list(flat.split(sizes))


def true_norm(gradients: list[Tensor]) -> float:
    return float(torch.cat([g.flatten().double() for g in gradients]).norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_norm_covers_all_layouts(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    flat, other = torch.randn(100, dtype=dtype), torch.randn(50, dtype=dtype)
    layouts = [
        views(flat, 60, 40),
        views(flat, 60, 40) + views(other, 20, 30),
        views(flat, 60, 40)[:1],  # not all that the memory holds
        [flat[:60].clone(), flat[60:].clone()],
        [*views(flat, 60, 40), other[:7].clone()],
    ]
    for gradients in layouts:
        assert float(Buckets().norm(gradients)) == pytest.approx(true_norm(gradients))


def test_bucket_norm_follows_moved_gradients() -> None:
    torch.manual_seed(0)
    buckets = Buckets()
    for _ in range(3):
        gradients = views(torch.randn(10), 3, 7)
        for _ in range(2):
            gradients[0].mul_(2)
            assert float(buckets.norm(gradients)) == pytest.approx(true_norm(gradients))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_type_need_not_hold_the_square(dtype: torch.dtype) -> None:
    gradients = views(torch.full((20_000,), 20, dtype=dtype), 12_000, 8_000)
    assert float(Buckets().norm(gradients)) == pytest.approx(20 * 20_000**0.5, rel=1e-2)
