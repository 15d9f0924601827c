"""Gradients of a model that is not trained: by parameter, adding up to the job's gradient norm."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from trainhall.training.link.gradient_record import (
    HISTOGRAM_BINS,
    LOWEST_EXPONENT,
    GradientRecord,
    Histogram,
)
from trainhall.training.spec import JobSpec

_BLOCKS = 6
"""Number of blocks in a model whose layers the spec does not give."""
_SPREAD = 2.1
"""Standard deviation of the binary logarithm of a gradient's numbers."""
_UNUSED = 0.04
"""Share of a weight's gradient that is zero: behind units that were off for a whole batch."""


class Gradients:
    """Gradients of one attempt.

    Args:
        parameters: how many numbers the model has in all.
    """

    def __init__(self, spec: JobSpec, parameters: int, ranks: int, seed: int) -> None:
        self._sizes = _sizes(spec, parameters)
        self._ranks = ranks
        self._chance = np.random.default_rng(seed)
        # The first layers get what is left of a signal that comes from the last.
        depth = np.linspace(0.35, 1.0, len(self._sizes))
        biases = [0.25 if name.endswith("bias") else 1.0 for name in self._sizes]
        self._shares = depth * biases * np.exp(0.25 * self._chance.standard_normal(len(depth)))

    def record(self, step: int, norm: float, request: int) -> GradientRecord:
        """Return the record of a step whose global norm is known."""
        shares = self._shares * np.exp(0.12 * self._chance.standard_normal(len(self._shares)))
        norms = norm * shares / math.sqrt(float((shares**2).sum()))
        # Ranks see samples of their own, and much of what they see differs averages out.
        apart = 1.0 + 0.6 * (1.0 - 1.0 / self._ranks) * self._chance.random(len(norms))
        return GradientRecord(
            step=step,
            request=request,
            names=list(self._sizes),
            norms=[float(f"{value:.6g}") for value in norms],
            largest=[float(f"{value:.6g}") for value in norms * apart],
            histograms=[
                _histogram(size, float(value), name)
                for (name, size), value in zip(self._sizes.items(), norms, strict=True)
            ]
            if request
            else None,
        )


def _sizes(spec: JobSpec, parameters: int) -> dict[str, int]:
    """Return each parameter's size, by its name in the task's model."""
    assert spec.task is not None
    params = spec.task.params
    ends = {"digits": (64, 10), "synthetic": (int(params.get("features", 32)), 1)}
    if spec.task.name in ends:
        first, last = ends[spec.task.name]
        hidden = params.get("hidden", [256] if spec.task.name == "digits" else [64])
        sizes = {}
        for i, (inputs, outputs) in enumerate(pairwise([first, *hidden, last])):
            sizes[f"{2 * i}.weight"] = inputs * outputs
            sizes[f"{2 * i}.bias"] = outputs
        return sizes
    each = max(1, parameters // (_BLOCKS + 2))
    names = [
        "stem.weight",
        *(f"blocks.{i}.{part}.weight" for i in range(_BLOCKS) for part in ("first", "second")),
        "head.weight",
        "head.bias",
    ]
    return {name: max(1, each // (2 if "blocks" in name else 1)) for name in names}


def _histogram(size: int, norm: float, name: str) -> Histogram:
    if not (math.isfinite(norm) and norm > 0):
        finite = math.isfinite(norm)
        return Histogram(zeros=size if finite else 0, not_finite=0 if finite else size)
    zeros = round(size * _UNUSED) if name.endswith("weight") else 0
    # The mean of squares of a log-normal lies above its median by so many binary orders.
    middle = math.log2(norm / math.sqrt(size)) - _SPREAD**2 * math.log(2)
    cdf = NormalDist(middle, _SPREAD).cdf
    ends = [cdf(LOWEST_EXPONENT + i) for i in range(HISTOGRAM_BINS + 1)]
    ends[0], ends[-1] = 0.0, 1.0
    edges = [round((size - zeros) * end) for end in ends]
    counts = [high - low for low, high in pairwise(edges)]
    full = [i for i, count in enumerate(counts) if count]
    return Histogram(first=full[0], counts=counts[full[0] : full[-1] + 1], zeros=zeros)
