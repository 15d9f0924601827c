"""Where two traces differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trainhall.training.verify.trace import Trace

TOLERANCE = 1e-9
"""Relative. Sound strategies stay below 1e-12 in float64; a bug moves a number by far more."""


@dataclass(frozen=True)
class Difference:
    """A number that two runs do not share."""

    kind: str
    """`loss`, `gradient_norm`, `gradient` or `weight`."""
    step: int
    """From 1."""
    name: str
    """The parameter's, or empty."""
    relative: float
    """The largest deviation, as a share of the largest number of its kind at this step."""

    def __str__(self) -> str:
        what = f"{self.kind} of {self.name}" if self.name else self.kind
        return f"{what} at step {self.step} differs by {self.relative:.1e}"


def differences(
    reference: Trace, other: Trace, tolerance: float = TOLERANCE
) -> Iterator[Difference]:
    """All that differs by more than `tolerance`, earliest step first.

    Raises:
        ValueError: the traces are not of the same job: steps or parameters are others.
    """
    if len(reference.losses) != len(other.losses):
        raise ValueError(f"{len(reference.losses)} steps against {len(other.losses)}")
    steps = len(reference.losses)
    for i in range(steps):
        loss = {"": torch.tensor(reference.losses[i])}, {"": torch.tensor(other.losses[i])}
        norm = {"": torch.tensor(reference.norms[i])}, {"": torch.tensor(other.norms[i])}
        for kind, (mine, theirs) in (
            ("loss", loss),
            ("gradient", (reference.gradients[i], other.gradients[i])),
            ("gradient_norm", norm),
        ):
            yield from _apart(kind, i + 1, mine, theirs, tolerance)
    yield from _apart("weight", steps, reference.weights, other.weights, tolerance)


def _apart(
    kind: str,
    step: int,
    reference: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    tolerance: float,
) -> Iterator[Difference]:
    if reference.keys() != other.keys():
        lacking = ", ".join(sorted(reference.keys() ^ other.keys()))
        raise ValueError(f"{kind} of step {step}: {lacking} is in one run alone")
    # Some gradients are zero but for rounding, such as those of key biases: one scale for all.
    scale = max(float(tensor.abs().max()) for tensor in reference.values())
    for name, tensor in reference.items():
        apart = float((tensor.double() - other[name].double()).abs().max()) / (scale or 1.0)
        if not apart <= tolerance:
            yield Difference(kind, step, name, apart)
