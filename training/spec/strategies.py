"""Candidate strategies of a job, and its spec with one of them; without torch."""

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from trainhall.parallelism.degrees import DEGREES, OPTIONS, StrategyName
from trainhall.training.spec.job import JobSpec
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.resources import changed

_MICROBATCHES = (4, 2, 1)
"""Default micro-batches as multiples of the pipeline's ranks; the first that divides is used."""
_OF_A_STRATEGY = (
    "strategy", "data", "shard", "tensor", "pipeline", "servers", "microbatches",
)  # fmt: skip


def candidates(workers: int) -> Iterator[tuple[StrategyName, dict[str, int]]]:
    """Yield every strategy with every mesh of so many workers that divides something."""
    for strategy in cast(tuple[StrategyName, ...], get_args(StrategyName)):
        if strategy == "parameter_server":
            for servers in _servers(workers):
                yield strategy, {"data": workers - servers, "servers": servers}
            continue
        names = DEGREES[strategy]
        for sizes in _factors(workers, len(names)):
            # The first degree is what the strategy is about.
            if strategy == "ddp" or sizes[0] > 1:
                yield strategy, dict(zip(names, sizes, strict=True))


def _servers(workers: int) -> Iterator[int]:
    """Yield one server, and half of the workers, where a server sends no more than a worker."""
    if workers > 1:
        yield from sorted({1, workers // 2})


def _factors(number: int, length: int) -> Iterator[tuple[int, ...]]:
    if length == 1:
        yield (number,)
        return
    for first in range(number, 0, -1):
        if number % first == 0:
            for rest in _factors(number // first, length - 1):
                yield (first, *rest)


def with_mesh(spec: JobSpec, workers: int, strategy: str, mesh: dict[str, int]) -> JobSpec:
    """Return the spec with a strategy and mesh, checked like any spec.

    Raises:
        SpecError: the job cannot have it.
    """
    parallelism: dict[str, Any] = {"strategy": strategy, **mesh}
    if strategy == "pipeline":
        ranks = mesh["pipeline"]
        parallelism["microbatches"] = spec.parallelism.microbatches or next(
            (m * ranks for m in _MICROBATCHES if _divides(m * mesh["data"] * ranks, spec)), ranks
        )
    return with_parallelism(spec, workers, parallelism)


def with_parallelism(spec: JobSpec, workers: int, parallelism: dict[str, Any]) -> JobSpec:
    """Return the spec with the `parallelism` of a plan and its own other options.

    Raises:
        SpecError: the job cannot have it.
    """
    data = spec.model_dump(mode="json", exclude_unset=True)
    own = options_of(parallelism["strategy"], data.get("parallelism", {}))
    kept = {k: v for k, v in own.items() if k not in _OF_A_STRATEGY}
    if parallelism.get("tensor", 1) == 1:
        kept.pop("sequence_parallel", None)
    data["resources"] = changed(data.get("resources", {}), {"workers": workers})
    data["parallelism"] = {**kept, **parallelism}
    return validate_spec(data)


def options_of(strategy: str, parallelism: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `parallelism` of a document without options that the strategy does not have."""
    return {k: v for k, v in parallelism.items() if strategy in OPTIONS.get(k, (strategy,))}


def _divides(parts: int, spec: JobSpec) -> bool:
    training = spec.training
    return training.global_batch_size % (parts * training.gradient_accumulation) == 0
