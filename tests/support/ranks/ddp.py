"""What the ranks of the DDP test do: a few steps in float64, saved by rank 0."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.data_parallel.gradient_sync import SyncOptions
from trainhall.parallelism.data_parallel.hook import HookedReplicas
from trainhall.parallelism.data_parallel.logical_shards import LogicalShards
from trainhall.parallelism.data_parallel.same_model import ModelMismatchError
from trainhall.parallelism.data_parallel.sending import Average
from trainhall.parallelism.strategy import NoGradientError, Tools
from trainhall.training.common.step_clock import StepClock
from trainhall.training.loop.optimizer_step import OptimizerStep
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.spec import Precision

DIES = 1
STEPS, ROUNDS, BATCH = 5, 3, 24
TOOLS = Tools(nullcontext, lambda loss: loss, lambda: None, lambda: None, lambda: None)


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
        strategy = Replicas(plain, device=device, bucket_mb=25)
        torch.manual_seed(environment.rank)
        strategy.called(torch.randn(BATCH, 6)).sum().backward()
        before = {name: buffer.clone() for name, buffer in plain.named_buffers()}
        strategy.share_buffers()
        after = dict(plain.named_buffers())
        torch.save((before, after), folder / f"{environment.rank}.pt")
    return 0


def lay_out_as_on_gpu(folder: Path) -> int:
    """In a rank of its own: Gloo's threads may still need the interpreter when a group is freed,
    which waits for them with the interpreter's lock held. A rank ends without freeing it."""
    cpu = torch.device("cpu")
    with process_group.joined(RankEnvironment.read(os.environ), device=cpu, namespace="test"):
        wrapped = DistributedDataParallel(nn.Linear(3, 2))
        wrapped.device_ids = [0]
        ddp._settle_buckets(wrapped)
        assert all(p.grad is None for p in wrapped.parameters())
        os._exit(0)


def wrap(folder: Path) -> int:
    """A model that was compiled whole, and one with a hook and a forward of its own."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        x = torch.ones(4, 6)
        for plain in (torch.compile(nn.Linear(6, 2), backend="eager"), _particular()):
            assert isinstance(plain, nn.Module)
            model = ddp.apply(plain, device=device, bucket_mb=25, hook=Average())
            assert torch.equal(model(x), plain(x))
            assert all(p.grad is None for p in plain.parameters())
    return 0


def _particular() -> nn.Module:
    model = nn.Linear(6, 2)
    plain = model.forward
    model.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign,assignment]
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    return model


def differ(folder: Path) -> int:
    """Rank 1 has another model; every rank writes down its error."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        width = 3 if environment.rank == 1 else 2
        try:
            ddp.apply(nn.Linear(6, width), device=device, bucket_mb=25, hook=Average())
        except ModelMismatchError as error:
            (folder / f"{environment.rank}.txt").write_text(str(error))
    return 0


def lose_one(folder: Path) -> int:
    """One rank dies before its second backward pass; the others write down their errors."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        model, inputs, _ = build()
        strategy = Replicas(model, device=device, bucket_mb=0.0001)
        for step in range(2):
            if step and environment.rank == DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                strategy.backward(inputs[step], _loss, TOOLS, rounds=1, last=True)
            except RuntimeError as error:
                (folder / f"{environment.rank}.txt").write_text(str(error), encoding="utf-8")
            strategy.clear_gradients()
        os._exit(0)  # ranks that wait for this one notice


def _loss(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    return model(batch).square().mean(), ()


def _error(model: nn.Module, batch: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    x, y = batch
    return nn.functional.mse_loss(model(x), y), ()


def train(folder: Path) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="test"):
        plain, inputs, targets = build()
        strategy = Replicas(plain, device=device, bucket_mb=0.0001)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
        for step in range(STEPS):
            mine = slice(environment.rank, None, environment.world_size)
            rounds = zip(
                inputs[step, mine].chunk(ROUNDS), targets[step, mine].chunk(ROUNDS), strict=True
            )
            for i, batch in enumerate(rounds, start=1):
                strategy.backward(batch, _error, TOOLS, rounds=ROUNDS, last=i == ROUNDS)
            optimizer.step()
            optimizer.zero_grad()
        torch.save(plain.state_dict(), folder / f"{environment.rank}.pt")
    return 0


class _Branches(nn.Module):
    """Two weights, of which a pass may leave the second one out."""

    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Linear(1, 1, bias=False)
        self.sometimes = nn.Linear(1, 1, bias=False)


def leave_one_out(folder: Path) -> int:
    """A second step whose last micro-batch has no use for one parameter, under each kind of
    replicas; every rank writes down its error and its weights."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    written: dict[str, list[Any]] = {}
    with process_group.joined(environment, device=device, namespace="test"):
        for kind, spread in _KINDS.items():
            for rounds in (1, 2):
                model = _Branches()
                strategy = spread(model, device)
                optimizer = torch.optim.SGD(strategy.parameters.values(), lr=0.1)
                precision = MixedPrecision(Precision.FP32, device)
                step = OptimizerStep(
                    strategy, optimizer, precision, StepClock(), gradient_clip=None
                )
                x = torch.full((4, 1), 1.0 + environment.rank)
                facts: list[Any] = []
                written[f"{kind} {rounds}"] = facts
                try:
                    for unused in (False, True):
                        batches = [(x, False)] * (rounds - 1) + [(x, unused)]
                        weights = [float(p) for p in model.parameters()]
                        facts[:] = [weights]
                        step.run(batches, rounds, _branching)
                except NoGradientError as error:
                    facts += [[float(p) for p in model.parameters()], str(error)]
    (folder / f"{environment.rank}.json").write_text(json.dumps(written))
    return 0


def _branching(called: nn.Module, batch: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    x, unused = batch
    model: Any = getattr(called, "module", called)
    model.forward = lambda x: model.always(x) + (0 if unused else model.sometimes(x))
    return called(x).square().mean(), ()


_KINDS: dict[str, Callable[[nn.Module, torch.device], Replicas]] = {
    "plain": lambda model, device: Replicas(model, device=device, bucket_mb=25),
    # As with several buckets: they are sent by a hook.
    "timed": lambda model, device: Replicas(model, device=device, bucket_mb=1e-6),
    "hooked": lambda model, device: HookedReplicas(
        model, SyncOptions(algorithm="ring"), device=device, bucket_mb=25
    ),
    "shards": lambda model, device: LogicalShards(
        model, device=device, bucket_mb=25, shards=dist.get_world_size()
    ),
}
