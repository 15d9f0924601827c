"""Tolerances between the numbers of two strategies; free of torch."""

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from trainhall.parallelism.data_parallel.gradient_sync import CompressionName

Dtype = Literal["float64", "float32"]
Kind = Literal["loss", "gradient_norm", "gradient", "weight"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Tolerance:
    """Largest ‖a−b‖ / max(‖b‖, floor) by kind of number; NaN is beyond every one."""

    loss: float
    gradient: float
    """Tolerance of gradients and of their global norm."""
    weight: float
    steps: float = inf
    """Later steps are reported, and only checked for NaN."""

    def of(self, kind: Kind, step: int) -> float:
        """Return the largest that is allowed to a kind of number at a step."""
        if step > self.steps:
            return inf
        return {
            "loss": self.loss,
            "gradient": self.gradient,
            "gradient_norm": self.gradient,
            "weight": self.weight,
        }[kind]


TOLERANCES: dict[Dtype, Tolerance] = {
    # Sound strategies stay below 1e-12; a bug moves a number by far more.
    "float64": Tolerance(loss=1e-9, gradient=1e-9, weight=1e-9),
    # The order of additions alone moves small gradients by much of their size, and AdamW weights
    # with them.
    "float32": Tolerance(loss=1e-5, gradient=inf, weight=1e-3),
}

HALF: dict[CompressionName, Tolerance] = {
    # A gradient's numbers are rounded to 11 or 8 bits, on every rank and in sums. What AdamW makes
    # of those that are zero but for rounding shows in later steps.
    "fp16": Tolerance(loss=1e-5, gradient=2e-3, weight=inf, steps=1),
    "bf16": Tolerance(loss=1e-5, gradient=2e-2, weight=inf, steps=1),
}
"""Tolerances of compressions that round."""


def tolerance(dtype: Dtype, compression: CompressionName) -> Tolerance:
    """Return the tolerance of a run in `dtype` whose gradients are compressed."""
    return HALF.get(compression, TOLERANCES[dtype])


FLOOR = 1e-3
"""As a share of the largest norm of all numbers of a kind at a step so far. Some gradients are zero
but for rounding, such as those of key biases, and what is left of a loss may be."""
