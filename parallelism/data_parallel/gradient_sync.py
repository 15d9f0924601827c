"""Options for combining a job's gradients. Free of torch."""

from dataclasses import dataclass
from typing import Literal

Algorithm = Literal[
    "native", "ring", "tree", "halving_doubling", "hierarchical", "parameter_server", "naive"
]
CompressionName = Literal["none", "fp16", "bf16", "topk", "powersgd"]
DEFAULT_RATIO = 0.01

FEEDS_BACK = ("topk", "powersgd")
"""Compressions that take a ratio, and keep what they have not sent."""
_GATHERS = ("native", "ring")
"""Algorithms that can give all ranks what each of them has."""


class GradientSyncError(ValueError):
    """A job cannot combine its gradients so."""

    def __init__(self, field: tuple[str, ...], value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        """The one to change, within `parallelism`."""
        self.value = value


@dataclass(frozen=True)
class SyncOptions:
    """Options for combining gradients over the ranks; the names are those of the spec."""

    algorithm: Algorithm = "native"
    compression: CompressionName = "none"
    ratio: float | None = None
    """For `topk` and `powersgd`: of the numbers that are sent; a hundredth if left out."""
    servers: int | None = None
    """For the algorithm `parameter_server`: how many ranks serve; one per host if left out."""

    @property
    def is_native(self) -> bool:
        """Return whether DDP and the backend do all of it."""
        return self.algorithm == "native" and self.compression == "none"


NATIVE = SyncOptions()


def check(
    options: SyncOptions, strategy: str, workers: int, *, reproducible: bool, loss_scaled: bool
) -> None:
    """See that a job's ranks can combine their gradients so.

    Args:
        strategy: of the spec, `auto` included, or `script`.
        loss_scaled: gradients come multiplied by a scale that changes, as with precision fp16.

    Raises:
        GradientSyncError: they cannot.
    """
    if options.ratio is not None and options.compression not in FEEDS_BACK:
        raise GradientSyncError(
            ("gradient_sync", "ratio"), options.ratio,
            f"is for compression {' and '.join(FEEDS_BACK)}; leave it out",
        )  # fmt: skip
    if options.algorithm == "parameter_server" and (options.servers or 1) > workers:
        raise GradientSyncError(
            ("servers",), options.servers,
            f"{options.servers} servers are more than the {workers} workers; give at most "
            f"{workers}, or raise resources.workers",
        )  # fmt: skip
    if options.compression == "topk" and options.algorithm not in _GATHERS:
        raise GradientSyncError(
            ("gradient_sync", "algorithm"), options.algorithm,
            "cannot carry topk, whose ranks send different elements: they are gathered, which only "
            f"{' and '.join(_GATHERS)} can do",
        )  # fmt: skip
    if options.compression in FEEDS_BACK and loss_scaled:
        raise GradientSyncError(
            ("gradient_sync", "compression"), options.compression,
            "keeps a residual for later steps, but with precision fp16 every step may have another "
            "loss scale: use precision bf16 or fp32, or compression fp16 or bf16",
        )  # fmt: skip
    if options.is_native:
        return
    field, value = "algorithm", str(options.algorithm)
    if options.algorithm == "native":
        field, value = "compression", options.compression
    reason = _obstacle(strategy, reproducible=reproducible)
    if reason is not None:
        raise GradientSyncError(("gradient_sync", field), value, reason)


def _obstacle(strategy: str, *, reproducible: bool) -> str | None:
    """Explain why only DDP and the backend can combine the gradients."""
    if strategy == "script":
        return "is for tasks; a script combines its own gradients: leave it out"
    if strategy not in ("ddp", "auto"):
        return (
            f"is for strategy ddp; {strategy} has its own collectives: leave it out, or set "
            "parallelism.strategy to ddp"
        )
    if reproducible:
        return (
            "conflicts with training.reproducible: its order of additions depends on the number of "
            "ranks; leave out one of them"
        )
    return None
