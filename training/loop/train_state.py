"""Training state: everything that a checkpoint holds, to continue as if nothing happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from trainhall.distributed import breakable
from trainhall.parallelism.strategy import Strategy
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.index import Index
from trainhall.training.checkpoint.state import unescaped
from trainhall.training.common import random_state
from trainhall.training.common.sample_order import Sampler
from trainhall.training.hash_chain.chain import GENESIS
from trainhall.training.loop.compression_state import PART, CompressionState
from trainhall.training.optim.optimizers import lacking_state, named_state
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.spec import TaskSpec


@dataclass
class TrainingState:
    """The parts of a running training, held by reference."""

    strategy: Strategy
    optimizer: Optimizer
    precision: MixedPrecision
    sampler: Sampler
    device: torch.device
    group: dist.ProcessGroup
    seed: int
    task: TaskSpec | None
    """The task that is trained: with it a checkpoint can be used without its job."""
    step: int = 0
    """Finished optimizer steps."""
    link: str = GENESIS
    """The newest link of a reproducible job's chain."""

    def __post_init__(self) -> None:
        self._sync = CompressionState(self.strategy, self.group)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return weights, buffers and optimizer state by name, for saving and loading."""
        return {
            "model": self.strategy.model.state_dict(),
            "optimizer": named_state(self.optimizer, self.strategy),
        }

    def snapshot(self) -> dict[str, Any]:
        """Collect the state that a checkpoint saves; all ranks call it at the same step."""
        self.strategy.share_buffers()
        mine = [self._stream, random_state.capture(self.device)]
        ranks = breakable.gather_objects(mine, self.group)
        extra = {
            "step": self.step,
            "task": None if self.task is None else self.task.model_dump(mode="json"),
            "sampler": self.sampler.state(),
            "scaler": self.precision.state(),
            "chain": self.link,
            "streams": [stream for stream, _ in ranks],
            "random": [state for _, state in ranks],
        }
        return {**self.tensors(), PART: self._sync.snapshot(), "extra": extra}

    def allocate_like(self, manifest: Manifest, index: Index) -> dict[str, Any]:
        """Allocate tensors for a checkpoint to be read into; `restore` adopts them."""
        tensors = self.tensors()
        state = tensors["optimizer"]
        for name in lacking_state(state, _optimizer_names(index)):
            state.pop(name).zero_()
        return {**tensors, PART: self._sync.allocate_like(manifest, index)}

    def restore(self, extra: Mapping[str, Any]) -> str | None:
        """Take over what is beside the tensors of the model and the optimizer.

        A rank takes the random state that it had; on another mesh that of the first rank which had
        read its part of the batches. Where there is none (there are more parts now) it starts from
        a fresh state, since no two parts may be given the same numbers.

        Returns:
            What people should know of it, if anything.
        """
        self.step = self.strategy.step = int(extra["step"])
        self.sampler.restore(extra["sampler"])
        self.precision.restore(extra["scaler"])
        self.link = extra.get("chain", GENESIS)
        rank, streams = dist.get_rank(self.group), extra["streams"]
        same = rank < len(streams) and streams[rank] == self._stream
        if same or self._stream in streams:
            found = rank if same else streams.index(self._stream)
            random_state.restore(extra["random"][found], self.device)
        else:
            random_state.seed_everything(
                random_state.derive_seed(self.seed, "rank", self._stream, self.step)
            )
        return self._sync.restore()

    @property
    def _stream(self) -> int:
        """Return the index of this rank's independent sequence of random numbers."""
        return self.strategy.stream


def _optimizer_names(index: Index) -> list[str]:
    """Return a checkpoint's optimizer state names, as `named_state` names them."""
    paths = (path.split("/") for path in index.metadata.state_dict_metadata)
    return [unescaped(name) for part, *names in paths if part == "optimizer" for name in names]
