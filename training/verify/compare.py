"""Compares two runs, step by step."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainhall.training.verify.snapshot import Snapshot
from trainhall.training.verify.tolerance import FLOOR, KINDS, Kind, Tolerance


class NotComparableError(RuntimeError):
    """The runs are not of one model."""


@dataclass(frozen=True)
class Deviation:
    """The deviation of one number or tensor between two runs."""

    kind: Kind
    name: str
    """The parameter's or buffer's, or empty."""
    relative: float
    """‖a−b‖ / max(‖b‖, floor)."""


class RunComparator:
    """Compares the steps of a run with those of a reference, in order.

    Args:
        names: of the model's weights, in its order: of several that differ the first is named.
        backward_order: of the gradients. An error in one spreads to those that are computed from
            it, so the first that the backward pass reached is the nearest to its cause.
    """

    def __init__(
        self, tolerance: Tolerance, names: Sequence[str], backward_order: Sequence[str]
    ) -> None:
        self._tolerance = tolerance
        self._places = {
            "gradient": {name: i for i, name in enumerate(backward_order)},
            "weight": {name: i for i, name in enumerate(names)},
        }
        self._largest: defaultdict[str, float] = defaultdict(float)

    def compare(self, reference: Snapshot, found: Snapshot) -> dict[str, Any]:
        """Return the largest deviation of each kind, how many are `beyond` the tolerance, and the
        `first`.

        Raises:
            NotComparableError: the parameters are others.
        """
        deviations = [
            *self._tensors("gradient", reference.gradients, found.gradients),
            *self._tensors("weight", reference.weights, found.weights),
            self._number("gradient_norm", reference.norm, found.norm),
            self._number("loss", reference.loss, found.loss),
        ]
        step = reference.step
        beyond = [d for d in deviations if not d.relative <= self._tolerance.of(d.kind, step)]
        first = beyond[0] if beyond else None
        line: dict[str, Any] = {"step": step}
        for kind in KINDS:
            line[kind] = _worst(d.relative for d in deviations if d.kind == kind)
        return line | {
            "beyond": len(beyond),
            "first": None
            if first is None
            else {"kind": first.kind, "name": first.name, "relative": first.relative},
        }

    def _tensors(
        self, kind: Kind, reference: Mapping[str, Tensor], found: Mapping[str, Tensor]
    ) -> list[Deviation]:
        if reference.keys() != found.keys():
            lacking = ", ".join(sorted(reference.keys() ^ found.keys()))
            raise NotComparableError(f"the {kind} of {lacking} is in one of the runs alone")
        norms = {name: _norm(tensor) for name, tensor in reference.items()}
        floor = self._floor(kind, math.hypot(*norms.values()))
        places = self._places[kind]
        return [
            Deviation(
                kind,
                name,
                _norm(found[name].double() - reference[name].double()) / max(norms[name], floor),
            )
            for name in sorted(reference, key=lambda name: (places.get(name, len(places)), name))
        ]

    def _number(self, kind: Kind, reference: float, found: float) -> Deviation:
        floor = self._floor(kind, abs(reference))
        return Deviation(kind, "", abs(found - reference) / max(abs(reference), floor))

    def _floor(self, kind: str, norm: float) -> float:
        self._largest[kind] = max(self._largest[kind], norm)
        return max(FLOOR * self._largest[kind], torch.finfo(torch.float64).tiny)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))


def _worst(values: Iterable[float]) -> float:
    return max(values, key=lambda value: math.inf if math.isnan(value) else value, default=0.0)
