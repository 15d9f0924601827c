"""Ranks that ask for more memory than there is, in one phase of their second step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW

from trainhall.training import rank

MORE_THAN_THERE_IS = 2**60


def _greedy(kind: type[Any], method: str, calls: int) -> int:
    original: Callable[..., Any] = getattr(kind, method)
    left = [calls]

    def take(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8)
        return original(*args, **options)

    setattr(kind, method, take)
    return rank.main()


def forward(path: Path) -> int:
    return _greedy(nn.Linear, "forward", 2)


def optimizer(path: Path) -> int:
    return _greedy(AdamW, "step", 1)


def backward(path: Path) -> int:
    linear = nn.Linear.forward

    def watched(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        output = linear(self, x)
        output.register_hook(lambda _: torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8))
        return output

    nn.Linear.forward = watched  # type: ignore[method-assign,assignment]
    return rank.main()


def model(path: Path) -> int:
    return _greedy(nn.Linear, "__init__", 0)
