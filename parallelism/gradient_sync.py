"""What a job may ask of the way in which its gradients are combined. Free of torch."""

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


class BadGradientSync(ValueError):
    """A job cannot combine its gradients so."""

    def __init__(self, field: tuple[str, ...], value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        """The one to change, within `parallelism`."""
        self.value = value


@dataclass(frozen=True)
class SyncOptions:
    """How gradients are combined over the ranks; the names are those of the spec."""

    algorithm: Algorithm = "native"
    compression: CompressionName = "none"
    ratio: float | None = None
    """For `topk` and `powersgd`: of the numbers that are sent; a hundredth if left out."""
    servers: int | None = None
    """For the algorithm `parameter_server`: how many ranks serve; one per host if left out."""

    @property
    def is_native(self) -> bool:
        """All of it is left to DDP and the backend."""
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
        BadGradientSync: they cannot.
    """
    if options.ratio is not None and options.compression not in FEEDS_BACK:
        raise BadGradientSync(
            ("gradient_sync", "ratio"), options.ratio,
            f"is for compression {' and '.join(FEEDS_BACK)}; leave it out",
        )  # fmt: skip
    if options.algorithm == "parameter_server" and (options.servers or 1) > workers:
        raise BadGradientSync(
            ("servers",), options.servers,
            f"{options.servers} servers are more than the {workers} workers, and these are what "
            f"serves; give at most {workers}, or raise resources.workers",
        )  # fmt: skip
    if options.compression == "topk" and options.algorithm not in _GATHERS:
        raise BadGradientSync(
            ("gradient_sync", "algorithm"), options.algorithm,
            "adds up, and what topk sends cannot be added, since each rank chooses other numbers: "
            f"it is gathered, which is for {' and '.join(_GATHERS)}",
        )  # fmt: skip
    if options.compression in FEEDS_BACK and loss_scaled:
        raise BadGradientSync(
            ("gradient_sync", "compression"), options.compression,
            "keeps what it has not sent for later steps, and with precision fp16 each step's "
            "gradients have a scale of their own: take precision bf16 or fp32, or compression fp16 "
            "or bf16",
        )  # fmt: skip
    if options.is_native:
        return
    field, value = "algorithm", str(options.algorithm)
    if options.algorithm == "native":
        field, value = "compression", options.compression
    reason = _obstacle(strategy, reproducible=reproducible)
    if reason is not None:
        raise BadGradientSync(("gradient_sync", field), value, reason)


def _obstacle(strategy: str, *, reproducible: bool) -> str | None:
    """Why only DDP and the backend can combine the gradients."""
    if strategy == "script":
        return "is for tasks; a script combines its gradients itself, so leave it out"
    if strategy not in ("ddp", "auto"):
        return (
            "is for strategy ddp, where every rank has a gradient of the whole model to be "
            f"averaged; the collectives of {strategy} are its own: leave it out, or set "
            "parallelism.strategy to ddp"
        )
    if reproducible:
        return (
            "would add in an order that depends on the number of ranks; reproducible training adds "
            "in that of one tree: leave it out, or training.reproducible"
        )
    return None
