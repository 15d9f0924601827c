"""What the ranks of the FSDP test do: one step under autocast, with what was gathered for it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.data_parallel.fsdp import FullyShardedData
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import Degrees
from trainhall.parallelism.mesh import Mesh

GATHERS = ("all_gather_single", "all_gather_into_tensor")
"""The newer name first; torch before 2.13 has the second alone."""
CPU = torch.device("cpu")


class Gate(nn.Linear):
    """A class of its own, since it is computed without autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


class Layer(nn.Module):
    """Linear layers beside a norm and a gate, whose weights autocast leaves as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.inner = nn.Linear(64, 256)
        self.outer = nn.Linear(256, 64)
        self.gate = Gate(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.outer(self.inner(self.norm(x)).relu())
        gated: torch.Tensor = x + added * self.gate(x)
        return gated


def build() -> tuple[nn.Module, Declaration]:
    torch.manual_seed(5)
    model = nn.Sequential(Layer(), nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64))
    return model, Declaration(layers=(("0",), ("1",), ("2", "3")))


def step(folder: Path) -> int:
    """Gradients, and how many bytes were gathered, of weights gathered whole and rounded before."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=CPU, namespace="step"):
        name = next(name for name in GATHERS if hasattr(dist, name))
        plain: Callable[..., Any] = getattr(dist, name)
        results = {}
        for low_precision in (None, torch.bfloat16):
            model, declaration = build()
            strategy = FullyShardedData(
                model,
                declaration,
                Mesh(Degrees(shard=environment.world_size), CPU),
                reshard=True,
                sequence_parallel=False,
                low_precision=low_precision,
            )
            gathered: list[int] = []

            def noting(*args: Any, _gathered: list[int] = gathered, **options: Any) -> Any:
                tensors = (*args, *options.values())
                _gathered.append(max(t.nbytes for t in tensors if isinstance(t, torch.Tensor)))
                return plain(*args, **options)

            setattr(dist, name, noting)
            torch.manual_seed(environment.rank)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = strategy.called(torch.randn(6, 64)).square().mean()
            loss.backward()
            strategy.average_gradients()
            setattr(dist, name, plain)
            gradients = dict(strategy.full_gradients())
            results[str(low_precision)] = (loss.detach(), gradients, sum(gathered))
        if environment.rank == 0:
            torch.save(results, folder / "results.pt")
    return 0
