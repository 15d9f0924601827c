"""What the ranks of the DDP test do: a few steps in float64, saved by rank 0."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism import ddp
from trainhall.parallelism.same_model import DifferentModels
from trainhall.parallelism.strategy import Tools

DIES = 1
STEPS, ROUNDS, BATCH = 5, 3, 24


def build() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2)).double()
    inputs = torch.randn(STEPS, BATCH, 6, dtype=torch.float64)
    return model, inputs, torch.randn(STEPS, BATCH, 2, dtype=torch.float64)


def share_buffers(folder: Path) -> int:
    """One forward pass in which each rank sees other samples, then what `evaluate` does first."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9))
        model = ddp.apply(plain, device=device, bucket_mb=25)
        torch.manual_seed(environment.rank)
        model(torch.randn(BATCH, 6)).sum().backward()
        before = {name: buffer.clone() for name, buffer in plain.named_buffers()}
        ddp.share_buffers(model)
        after = dict(plain.named_buffers())
        torch.save((before, after), folder / f"{environment.rank}.pt")
    return 0


def wrap(folder: Path) -> int:
    """A model that was compiled whole, and one with a hook and a forward of its own."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        x = torch.ones(4, 6)
        for plain in (torch.compile(nn.Linear(6, 2), backend="eager"), _particular()):
            assert isinstance(plain, nn.Module)
            model = ddp.apply(plain, device=device, bucket_mb=25)
            assert torch.equal(model(x), plain(x))
            assert all(p.grad is None for p in plain.parameters())
    return 0


def _particular() -> nn.Module:
    model = nn.Linear(6, 2)
    plain = model.forward
    model.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    return model


def differ(folder: Path) -> int:
    """Rank 1 has another model; every rank writes down what it is told."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        width = 3 if environment.rank == 1 else 2
        try:
            ddp.apply(nn.Linear(6, width), device=device, bucket_mb=25)
        except DifferentModels as error:
            (folder / f"{environment.rank}.txt").write_text(str(error))
    return 0


def lose_one(folder: Path) -> int:
    """One rank dies before its second backward pass; the others write down what they are told."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        model, inputs, _ = build()
        strategy = ddp.Replicas(model, device=device, bucket_mb=0.0001)
        tools = Tools(nullcontext, lambda loss: loss, *[lambda: None] * 3)
        for step in range(2):
            if step and environment.rank == DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                strategy.backward(inputs[step], _loss, tools, rounds=1, last=True)
            except RuntimeError as error:
                (folder / f"{environment.rank}.txt").write_text(str(error), encoding="utf-8")
            strategy.clear_gradients()
        os._exit(0)  # whoever still waits for this rank is told


def _loss(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    return model(batch).square().mean(), ()


def train(folder: Path) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        plain, inputs, targets = build()
        model = ddp.apply(plain, device=device, bucket_mb=0.0001)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
        for step in range(STEPS):
            mine = slice(environment.rank, None, environment.world_size)
            rounds = zip(
                inputs[step, mine].chunk(ROUNDS), targets[step, mine].chunk(ROUNDS), strict=True
            )
            for i, (x, y) in enumerate(rounds, start=1):
                if i < ROUNDS:
                    with ddp.local_gradients(model):
                        (nn.functional.mse_loss(model(x), y) / ROUNDS).backward()
                else:
                    (nn.functional.mse_loss(model(x), y) / ROUNDS).backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save(plain.state_dict(), folder / f"{environment.rank}.pt")
    return 0
