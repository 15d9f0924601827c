"""The number of ranks of each kind of parallelism. No torch: a coordinator checks it too."""

from dataclasses import dataclass, fields
from math import prod
from typing import Literal

StrategyName = Literal["ddp", "fsdp", "tensor", "pipeline", "model", "parameter_server"]
Schedule = Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv"]

STAGES_PER_RANK: dict[Schedule, int] = {
    "gpipe": 1,
    "1f1b": 1,
    "interleaved_1f1b": 2,
    "interleaved_zero_bubble": 2,
    "zbv": 2,
}
SPLIT: frozenset[Schedule] = frozenset({"interleaved_zero_bubble", "zbv"})
"""Schedules with backward passes for the inputs and for the weights."""

DEGREES: dict[StrategyName, tuple[str, ...]] = {
    "ddp": ("data",),
    "fsdp": ("shard", "data", "tensor"),
    "tensor": ("tensor", "data"),
    "pipeline": ("pipeline", "data", "tensor"),
    "model": ("pipeline", "data"),
    "parameter_server": ("data",),
}
"""The degrees that a strategy has. Of those that a job leaves out, the first takes all workers that
the given ones leave."""

OPTIONS: dict[str, tuple[StrategyName, ...]] = {
    "microbatches": ("pipeline",),
    "schedule": ("pipeline",),
    "reshard_after_forward": ("fsdp",),
    "sequence_parallel": tuple(name for name, degrees in DEGREES.items() if "tensor" in degrees),
}
"""The strategies that have an option of `parallelism`; under the others it would do nothing."""


class DegreesError(ValueError):
    """Degrees that make no mesh of the workers; `field` is the one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Degrees:
    """The sizes of a mesh of ranks, outermost dimension first; with the servers beside it they make
    the world size."""

    data: int = 1
    """Copies of the model that are trained on different samples."""
    pipeline: int = 1
    """Ranks that hold a copy's layers one after the other, and work on the same samples."""
    shard: int = 1
    """Ranks that share one copy's weights, each on samples of its own."""
    tensor: int = 1
    """Ranks that compute each layer together, on the same samples."""
    servers: int = 0
    """Ranks after those of the mesh that hold weights and optimizer, and read no samples."""

    @property
    def world_size(self) -> int:
        return prod(self.sizes.values()) + self.servers

    @property
    def samples(self) -> int:
        """Parts into which the samples of a global batch are divided."""
        return self.data * self.shard

    @property
    def sizes(self) -> dict[str, int]:
        """Degrees of the mesh by name, outermost first."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "servers"}


def solve(
    strategy: StrategyName,
    workers: int,
    given: dict[str, int | None],
    servers: int | None = None,
) -> Degrees:
    """Return the degrees of a job: the given ones, and one that takes the remaining workers.

    Raises:
        DegreesError: they are none of the strategy's, or do not multiply to the number of workers.
    """
    _check_names(strategy, given)
    if strategy == "parameter_server":
        return _with_servers(workers, given, 1 if servers is None else servers)
    if servers is not None:
        raise DegreesError(
            "servers",
            f"strategy {strategy} has no servers; leave it out, or choose parameter_server",
        )
    degrees = Degrees(**_multiplied(DEGREES[strategy], workers, given))
    if "pipeline" in DEGREES[strategy] and degrees.pipeline == 1:
        raise DegreesError("pipeline", _no_pipeline(strategy, workers, given, degrees))
    return degrees


def _multiplied(
    allowed: tuple[str, ...], workers: int, given: dict[str, int | None]
) -> dict[str, int]:
    """Return the given degrees, and the first of the others, which makes them as many as the
    workers."""
    known = {name: degree for name in allowed if (degree := given.get(name)) is not None}
    left_out = [name for name in allowed if name not in known]
    product = prod(known.values())
    product_of = " × ".join(f"{name} {degree}" for name, degree in known.items())
    if len(known) > 1:
        product_of += f" = {product}"
    field = max(known, key=lambda name: known[name], default=allowed[0])
    if workers % product != 0:
        raise DegreesError(
            field,
            f"the number of workers, {workers}, is not divisible by {product_of}; change it or "
            "resources.workers",
        )
    if left_out:
        known[left_out[0]] = workers // product
    elif product != workers:
        raise DegreesError(
            field,
            f"{product_of} must equal the number of workers, {workers}; change it or "
            f"resources.workers, or leave `{field}` out",
        )
    return known


def _no_pipeline(
    strategy: StrategyName, workers: int, given: dict[str, int | None], degrees: Degrees
) -> str:
    """Return why there is only one stage: it was asked for, or no workers are left."""
    if given.get("pipeline") == 1 and workers > 1:
        return (
            f"strategy {strategy} needs at least 2 stages; give a larger `pipeline`, or choose ddp"
        )
    others = {name: n for name in DEGREES[strategy] if (n := degrees.sizes[name]) > 1}
    if not others:
        return f"strategy {strategy} needs at least 2 stages; use more workers, or ddp"
    product = " × ".join(f"{name} {degree}" for name, degree in others.items())
    divisor = f"({product})" if len(others) > 1 else product
    return (
        f"{workers} workers / {divisor} leave pipeline 1, which does not split the model; use more "
        f"workers, a smaller {' or '.join(others)}, or ddp"
    )


def _check_names(strategy: StrategyName, given: dict[str, int | None]) -> None:
    allowed = DEGREES[strategy]
    for name, degree in given.items():
        if degree not in (None, 1) and name not in allowed:
            raise DegreesError(
                name,
                f"strategy {strategy} has no degree `{name}`, only {' and '.join(allowed)}; "
                "leave it out or choose another strategy",
            )


def _with_servers(workers: int, given: dict[str, int | None], servers: int) -> Degrees:
    data = workers - servers
    if data < 1:
        raise DegreesError(
            "servers",
            f"with {servers} servers, {max(data, 0)} of {workers} workers are left to train; "
            f"give at most {workers - 1}, or raise resources.workers"
            if workers > 1
            else "parameter_server needs at least 2 workers, one of them a server; raise "
            "resources.workers, or choose ddp",
        )
    if given.get("data") not in (None, data):
        raise DegreesError(
            "data",
            f"{workers} workers - {servers} servers = {data} train, not {given['data']}; "
            "leave it out, or change servers or resources.workers",
        )
    return Degrees(data=data, servers=servers)


def expected_bubble(pipeline: int, microbatches: int) -> float:
    """Return the share of a step in which the ranks of a pipeline wait, with equal stages."""
    return (pipeline - 1) / (microbatches + pipeline - 1)


def check_schedule(schedule: Schedule, pipeline: int, microbatches: int) -> None:
    """Check that a schedule suits a pipeline of so many ranks.

    Raises:
        DegreesError: there are too few micro-batches, or a number that makes uneven rounds.
    """
    if microbatches < pipeline:
        raise DegreesError(
            "microbatches",
            f"{microbatches} are fewer than the {pipeline} ranks of the pipeline; give at least "
            f"{pipeline}",
        )
    rounds = microbatches // pipeline
    if schedule.startswith("interleaved") and microbatches % rounds != 0:
        raise DegreesError(
            "microbatches",
            f"{schedule} needs rounds of equal size, and {microbatches} micro-batches are not "
            f"divisible by {rounds}; give {rounds * pipeline} or {(rounds + 1) * pipeline}",
        )
