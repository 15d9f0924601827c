"""How many ranks each kind of parallelism takes. No torch: a coordinator checks it too."""

from dataclasses import dataclass, fields
from math import prod
from typing import Literal

StrategyName = Literal["ddp", "fsdp"]

DEGREES: dict[StrategyName, tuple[str, ...]] = {
    "ddp": ("data",),
    "fsdp": ("shard", "data"),
}
"""The degrees that a strategy has; the first takes all workers that the others leave."""


class BadDegrees(ValueError):
    """Degrees that make no mesh of the workers; `field` is the one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Degrees:
    """The sizes of a mesh of ranks, outermost dimension first; their product is the world size."""

    data: int = 1
    """Copies of the model that are trained on different samples."""
    shard: int = 1
    """Ranks that share one copy's weights, each on samples of its own."""

    @property
    def world_size(self) -> int:
        return prod(self.sizes.values())

    @property
    def samples(self) -> int:
        """Parts into which the samples of a global batch are divided."""
        return self.data * self.shard

    @property
    def sizes(self) -> dict[str, int]:
        """By name, outermost first."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def solve(strategy: StrategyName, workers: int, given: dict[str, int | None]) -> Degrees:
    """The degrees of a job: those that are given, and the strategy's first one out of the rest.

    Raises:
        BadDegrees: they are none of the strategy's, or do not multiply to the number of workers.
    """
    allowed = DEGREES[strategy]
    for name, degree in given.items():
        if degree not in (None, 1) and name not in allowed:
            raise BadDegrees(
                name,
                f"strategy {strategy} has no degree `{name}`, only {' and '.join(allowed)}; "
                "leave it out or choose another strategy",
            )
    filling, *others = allowed
    known = {name: given.get(name) or 1 for name in others}
    first = given.get(filling)
    if first is None:
        rest = prod(known.values())
        if workers % rest != 0:
            field = next(name for name, degree in known.items() if degree > 1)
            told = " × ".join(f"{name} {degree}" for name, degree in known.items() if degree > 1)
            raise BadDegrees(
                field,
                f"{told} = {rest} does not divide the number of workers, {workers}; "
                "change it or resources.workers",
            )
        first = workers // rest
    degrees = Degrees(**{filling: first, **known})
    if degrees.world_size != workers:
        told = " × ".join(f"{name} {degrees.sizes[name]}" for name in allowed)
        raise BadDegrees(
            filling if given.get(filling) is not None else others[0],
            f"{told} = {degrees.world_size} must be the number of workers, {workers}; change it "
            f"or resources.workers, or leave `{filling}` out",
        )
    return degrees
