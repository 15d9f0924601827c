"""Every way in which a job can be spread over a number of workers, as the spec allows it.

Free of torch. What is allowed follows from `DEGREES` and the checks of the job spec alone, so a new
strategy is compared as soon as a spec may ask for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from math import prod
from typing import Any, get_args

from trainhall.parallelism.data_parallel.gradient_sync import FEEDS_BACK, Algorithm, CompressionName
from trainhall.parallelism.degrees import DEGREES, Schedule, StrategyName
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.resources import changed

STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)


@dataclass(frozen=True)
class Partition:
    """Into what a global batch is cut before a layer sees it: batch norm measures such a part."""

    samples: int = 1
    """Parts that are read by different ranks."""
    microbatches: int = 1
    """Pieces of a part in a pipeline."""


WHOLE = Partition()


@dataclass(frozen=True)
class Candidate:
    """A strategy on a mesh."""

    strategy: StrategyName
    mesh: str
    """The degrees above 1 and the options, for people."""
    parallelism: dict[str, Any] = field(hash=False)
    """As a spec gives it."""
    spec: JobSpec | None = None
    """None: it does not fit."""
    refusal: str = ""
    """Why not."""

    @property
    def partition(self) -> Partition:
        assert self.spec is not None
        return Partition(self.spec.degrees.samples, self.spec.microbatches)


def comparable(spec: JobSpec, steps: int) -> dict[str, Any]:
    """Return the document of a job whose steps do not depend on how it is spread, but for a bug.

    It takes `steps` steps without dropout, whose random numbers differ from mesh to mesh.
    """
    document: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    training = document.get("training", {})
    for key in ("epochs", "reproducible", "logical_shards", "pause_at"):
        training.pop(key, None)
    training |= {"steps": steps, "precision": "fp32", "data_workers": 0}
    document["training"] = training
    for part in ("parallelism", "checkpoint", "priority"):
        document.pop(part, None)
    assert spec.task is not None
    if not spec.task.is_own and "dropout" in spec.task.params:
        document["task"]["params"]["dropout"] = 0.0
    return document


def serial(document: dict[str, Any], partition: Partition) -> JobSpec:
    """Return the job on one worker, which takes the parts of a partition one after the other."""
    training = dict(document["training"])
    rounds = training.get("gradient_accumulation", 1)
    training["gradient_accumulation"] = rounds * partition.samples * partition.microbatches
    return _spec(document | {"training": training}, 1, {"strategy": "ddp"})


def candidates(
    document: dict[str, Any],
    workers: int,
    strategies: Sequence[StrategyName],
    own: dict[str, Any],
) -> list[Candidate]:
    """Return every mesh of so many workers under each strategy, with what does not fit.

    Args:
        document: from `comparable`.
        own: the job's own `parallelism`, of whose strategy other options than these are kept.
    """
    found = []
    for strategy in strategies:
        kept: dict[str, Any] = {}
        if strategy == own.get("strategy", "ddp"):
            kept = {k: own[k] for k in ("microbatches", "gradient_sync") if k in own}
            if "gradient_sync" in kept:
                kept["gradient_sync"] = _whole(kept["gradient_sync"])
        for degrees in _meshes(strategy, workers):
            plain = {"strategy": strategy} | kept | degrees
            base = _candidate(document, workers, plain, {})
            if base is None:
                continue
            found.append(base)
            if base.spec is not None:
                variants = (
                    _candidate(document, workers, plain, option) for option in _options(base.spec)
                )
                found += [variant for variant in variants if variant is not None]
    return found


def _whole(gradient_sync: dict[str, Any]) -> dict[str, Any]:
    """Return the same, with nothing left out of a step: what is sent later cannot be compared."""
    if gradient_sync.get("compression") in FEEDS_BACK:
        return gradient_sync | {"ratio": 1.0}
    return gradient_sync


def _meshes(strategy: StrategyName, workers: int) -> Iterator[dict[str, int]]:
    """Degrees but for the strategy's first, which takes the workers that the others leave."""
    _, *others = DEGREES[strategy]
    divisors = [n for n in range(1, workers + 1) if workers % n == 0]
    for sizes in product(divisors, repeat=len(others)):
        if workers % prod(sizes) == 0:
            yield dict(zip(others, sizes, strict=True))


def _options(spec: JobSpec) -> Iterator[dict[str, Any]]:
    """Vary the options of this mesh, one at a time."""
    strategy, degrees = spec.parallelism.strategy, spec.degrees
    if strategy == "ddp" and degrees.data > 1:
        yield from ({"gradient_sync": each} for each in _gradient_syncs(spec))
    if strategy == "pipeline":
        yield from (
            {"schedule": name} for name in get_args(Schedule) if name != spec.parallelism.schedule
        )
    if strategy == "fsdp" and degrees.tensor == 1:
        yield {"reshard_after_forward": False}
    if degrees.tensor > 1:
        yield {"sequence_parallel": True}


def _gradient_syncs(spec: JobSpec) -> Iterator[dict[str, Any]]:
    own = spec.parallelism.gradient_sync.model_dump(mode="json", exclude_unset=True)
    for algorithm in get_args(Algorithm):
        if algorithm != spec.gradient_sync.algorithm:
            yield {**own, "algorithm": algorithm}
    others = {key: value for key, value in own.items() if key not in ("compression", "ratio")}
    for compression in get_args(CompressionName):
        if compression != spec.gradient_sync.compression:
            yield _whole({**others, "compression": compression})


def _candidate(
    document: dict[str, Any], workers: int, plain: dict[str, Any], option: dict[str, Any]
) -> Candidate | None:
    """Return a mesh as the spec allows it; None where it is another strategy's."""
    parallelism = plain | option
    shown = {key: plain[key] for key in ("gradient_sync",) if key in plain} | option
    strategy: StrategyName = parallelism["strategy"]
    first, *others = DEGREES[strategy]
    degrees = {name: plain[name] for name in others}
    degrees = {first: workers // prod(degrees.values()), **degrees}
    if degrees[first] == 1 and workers > 1:
        return None
    try:
        spec = _spec(document, workers, parallelism)
    except SpecError as error:
        refusal = "; ".join(problem.message for problem in error.problems)
        return Candidate(strategy, _mesh(degrees, shown), parallelism, refusal=refusal)
    solved = asdict(spec.degrees)
    names = dict.fromkeys([*degrees, *solved])
    mesh = _mesh({name: solved[name] for name in names}, shown)
    return Candidate(strategy, mesh, parallelism, spec)


def _mesh(degrees: dict[str, int], option: dict[str, Any]) -> str:
    servers = degrees.get("servers", 0)
    parts = [" × ".join(f"{k} {n}" for k, n in degrees.items() if n > 1 and k != "servers")]
    if servers:
        parts.append(f"{servers} server{'s' if servers > 1 else ''}")
    parts += [_option_text(key, value) for key, value in option.items()]
    return ", ".join(part for part in parts if part)


def _option_text(key: str, value: Any) -> str:
    match key:
        case "schedule":
            return str(value)
        case "gradient_sync":
            named = [value[key] for key in ("algorithm", "compression") if key in value]
            whole = ["at ratio 1"] if value.get("ratio") == 1 else []
            return " ".join(named + whole)
        case "reshard_after_forward":
            return "no resharding"
    return key.replace("_", " ")


def _spec(document: dict[str, Any], workers: int, parallelism: dict[str, Any]) -> JobSpec:
    resources = changed(document.get("resources", {}), {"workers": workers})
    return validate_spec(document | {"resources": resources, "parallelism": parallelism})
