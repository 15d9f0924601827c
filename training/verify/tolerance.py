"""How far the numbers of two strategies may be apart; free of torch."""

from dataclasses import dataclass
from math import inf
from typing import Literal

Dtype = Literal["float64", "float32"]


@dataclass(frozen=True)
class Tolerance:
    """Largest ‖a−b‖ / max(‖b‖, floor) by kind of number; NaN is beyond every one."""

    loss: float
    gradient: float
    """Of gradients and of their global norm."""
    weight: float


TOLERANCES: dict[Dtype, Tolerance] = {
    # Sound strategies stay below 1e-12; a bug moves a number by far more.
    "float64": Tolerance(loss=1e-9, gradient=1e-9, weight=1e-9),
    # The order of additions alone moves small gradients by much of their size, and AdamW weights
    # with them.
    "float32": Tolerance(loss=1e-5, gradient=inf, weight=1e-3),
}

FLOOR = 1e-3
"""As a share of the largest norm of all numbers of a kind at a step so far. Some gradients are zero
but for rounding, such as those of key biases, and what is left of a loss may be."""
