"""What the ranks of the tests of compressed gradients do: save what they have not sent, or load it.

What a rank has not sent is drawn from its number.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed import process_group
from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.error_feedback import RESIDUAL
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.strategy import Strategy
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.index import Index
from trainhall.training.fencing import FencingToken
from trainhall.training.loop.compression_state import PART, CompressionState

SHAPES = {"0.weight": (9, 6), "0.bias": (9,), "scale": ()}
TOKEN = FencingToken("job", 1, 1)
NAME = "step-00000001-a1-g1"


def _like(sync: CompressionState, manifest: Manifest, index: Index) -> dict[str, Any]:
    return {PART: sync.allocate_like(manifest, index)}


def left_by(rank: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in SHAPES.items()
    }


class Compressed:
    """The part of a strategy that checkpoints see."""

    def __init__(self, compression: str) -> None:
        self._compression = choose(compression, 0.1)
        self._residual: Mapping[str, Tensor] = {}

    def sync_state(self) -> dict[str, Tensor]:
        return self._compression.state_dict()

    def load_sync_state(self, state: Mapping[str, Tensor]) -> None:
        self._compression.load_state_dict(state)

    def add_pending_residual(self, gradients: Mapping[str, Tensor]) -> bool:
        self._residual = gradients
        return True

    def pending_residual(self) -> dict[str, Tensor]:
        return dict(self._residual)


@contextmanager
def taking_part(folder: Path) -> Iterator[tuple[int, Checkpointer]]:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    namespace = f"test {environment.world_size}"
    with process_group.joined(environment, device=torch.device("cpu"), namespace=namespace):
        group = process_group.cpu_group()
        yield environment.rank, Checkpointer(folder / "saved", TOKEN, group, lambda _: None)


def save(folder: Path) -> int:
    with taking_part(folder) as (rank, checkpointer):
        strategy = Compressed("topk")
        strategy.load_sync_state({RESIDUAL + name: t for name, t in left_by(rank).items()})
        sync = CompressionState(cast(Strategy, strategy), process_group.cpu_group())
        checkpointer.save(1, {PART: sync.snapshot()})
        checkpointer.wait()
    return 0


def save_beside_newcomers(folder: Path) -> int:
    """As behind a regrouping: the last rank alone has taken a step before."""
    with taking_part(folder) as (rank, checkpointer):
        strategy = Compressed("topk")
        if rank == dist.get_world_size() - 1:
            strategy.load_sync_state({RESIDUAL + name: t for name, t in left_by(rank).items()})
        sync = CompressionState(cast(Strategy, strategy), process_group.cpu_group())
        checkpointer.save(1, {PART: sync.snapshot()})
        checkpointer.wait()
    return 0


def load(folder: Path) -> int:
    """As a job that keeps what is unsent, and as one that does not; the results of every rank."""
    with taking_part(folder) as (rank, checkpointer):
        keeps, gives = Compressed("powersgd"), Compressed("none")
        for strategy in (keeps, gives):
            sync = CompressionState(cast(Strategy, strategy), process_group.cpu_group())
            loaded = checkpointer.load(
                [NAME],
                partial(_like, sync),
                optional=PART,
            )
            assert loaded is not None
            assert sync.restore() is None
        assert not keeps.pending_residual()
        kept = {k.removeprefix(RESIDUAL): v for k, v in keeps.sync_state().items()}
        torch.save((kept, gives.pending_residual()), folder / f"{dist.get_world_size()}-{rank}.pt")
    return 0
