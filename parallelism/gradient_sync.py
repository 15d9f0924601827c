"""What a job may ask of the way in which its gradients are combined. Free of torch."""

from dataclasses import dataclass
from typing import Literal

Algorithm = Literal[
    "native", "ring", "tree", "halving_doubling", "hierarchical", "parameter_server", "naive"
]
CompressionName = Literal["none"]


class BadGradientSync(ValueError):
    """A job cannot combine its gradients so; `field` is the one to change."""

    def __init__(self, field: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.field = field
        """Within `parallelism`."""


@dataclass(frozen=True)
class GradientSync:
    """How gradients are combined over the ranks; the names are those of the spec."""

    algorithm: Algorithm = "native"
    compression: CompressionName = "none"
    servers: int | None = None
    """For the algorithm `parameter_server`: how many ranks serve; one per host if left out."""

    @property
    def is_native(self) -> bool:
        """All of it is left to DDP and the backend."""
        return self.algorithm == "native" and self.compression == "none"


def check(sync: GradientSync, strategy: str, workers: int, *, reproducible: bool) -> None:
    """See that a job's ranks can combine their gradients so.

    Raises:
        BadGradientSync: they cannot.
    """
    if sync.servers is not None and sync.algorithm == "parameter_server":
        _check_servers(sync.servers, workers)
    if sync.is_native:
        return
    field, what = _asked(sync)
    if strategy != "ddp":
        raise BadGradientSync(
            field,
            f"{what} combines the gradients of ddp, which holds the whole model on every rank; "
            f"{strategy} moves parts of it by collectives of its own: leave it out, or set "
            "parallelism.strategy to ddp",
        )
    if reproducible:
        raise BadGradientSync(
            field,
            f"{what} adds in an order that depends on the number of ranks, and reproducible "
            "training in that of one fixed tree, which takes its place: leave it out, or "
            "training.reproducible",
        )


def _asked(sync: GradientSync) -> tuple[tuple[str, ...], str]:
    if sync.algorithm != "native":
        return ("gradient_sync", "algorithm"), f"algorithm {sync.algorithm}"
    return ("gradient_sync", "compression"), f"compression {sync.compression}"


def _check_servers(servers: int, workers: int) -> None:
    if servers > workers:
        raise BadGradientSync(
            ("servers",),
            f"{servers} servers are more than the {workers} workers, and servers are workers that "
            f"add up besides; give at most {workers}, or raise resources.workers",
        )
