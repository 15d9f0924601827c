"""Runs of another tracker, whatever they are read from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple


class OldPoint(NamedTuple):
    step: int
    timestamp: int
    """Milliseconds since 1970."""
    value: float


class OldArtifact(NamedTuple):
    path: str
    """Relative, with `/` between its parts."""
    open: Callable[[], AbstractContextManager[BinaryIO]]


@dataclass(frozen=True)
class OldRun:
    """
    Args:
        group: MLflow's experiment.
        status: MLflow's.
        start: milliseconds since 1970, as is `end`.
        metrics: yields each metric with its points.
        artifacts: yields the files of the run.
    """

    id: str
    group: str
    name: str
    status: str
    start: int
    end: int | None
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Callable[[], Iterator[tuple[str, Sequence[OldPoint]]]]
    artifacts: Callable[[], Iterator[OldArtifact]]
