"""What the ranks of the Trainer test do: a few steps over their share of the batches."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.sdk.trainer import Trainer

STEPS, BATCH = 3, 12


def loss_fn(model: nn.Module, batch: Any) -> torch.Tensor:
    return mse_loss(model(batch["x"]), batch["y"])


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def make_batch(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 4, generator=generator)
    return {"x": x, "y": x.sum(dim=1, keepdim=True)}


def train_over_a_ring(folder: Path) -> int:
    return train(folder, {"algorithm": "ring", "bucket_mb": 1e-4})


def train(folder: Path, gradient_sync: dict[str, Any] | None = None) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=torch.device("cpu"), namespace="test"):
        trainer = Trainer(
            make_model(),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            gradient_accumulation=2,
            gradient_sync=gradient_sync,
        )
        share = BATCH // environment.world_size
        mine = slice(environment.rank * share, (environment.rank + 1) * share)
        for step in range(1, STEPS + 1):
            batch = {name: tensor[mine] for name, tensor in make_batch(step).items()}
            trainer.train_step(batch, loss_fn)
        weights = [p.detach() for p in trainer.plain_model.parameters()]
        torch.save(weights, folder / f"{environment.rank}.pt")
    return 0


def train_on(folder: Path) -> int:
    """Steps of a compression in one go, and in two with a saved state in between."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)

    def make() -> Trainer:
        return Trainer(
            make_model(),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            gradient_sync={"compression": "topk", "ratio": 0.2},
        )

    def train_on(trainer: Trainer) -> None:
        share = BATCH // environment.world_size
        mine = slice(environment.rank * share, (environment.rank + 1) * share)
        for _ in range(STEPS):
            batch = make_batch(trainer.step + 1)
            trainer.train_step({name: x[mine] for name, x in batch.items()}, loss_fn)

    with process_group.joined(environment, device=torch.device("cpu"), namespace="test"):
        first, second = make(), make()
        train_on(first)
        saved = [first.state_dict(unsent=True)]
        dist.broadcast_object_list(saved, src=0)
        torch.save(saved[0], folder / "saved.pt")
        second.load_state_dict(saved[0])
        for trainer in (first, second):
            train_on(trainer)
        weights = [[p.detach() for p in t.plain_model.parameters()] for t in (first, second)]
        torch.save(weights, folder / f"{environment.rank}.pt")
    return 0


def train_on_with_nccl_alone(folder: Path) -> int:
    """As `train_on`, in a default group that says of itself that it carries no host memory."""
    gather: Any = dist.gather

    def refuse(tensor: torch.Tensor, *arguments: Any, group: Any = None, **options: Any) -> Any:
        if group in (None, dist.group.WORLD):
            raise RuntimeError("No backend type associated with device type cpu")
        return gather(tensor, *arguments, group=group, **options)

    dist.gather = refuse
    dist.get_backend_config = lambda group=None: "cuda:nccl"
    dist.get_backend = lambda group=None: dist.Backend("nccl")
    return train_on(folder)
