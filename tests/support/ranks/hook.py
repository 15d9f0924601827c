"""What the ranks of the tests of DDP's communication hook do."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast, get_args

import torch
import torch.distributed as dist
from support.waiting import eventually
from torch import Tensor, nn

from trainhall.distributed import process_group
from trainhall.distributed.compression.interface import Bucket, Dense
from trainhall.distributed.environment import RankEnvironment, RankEnvironmentError
from trainhall.distributed.exchange import open_exchange
from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.gradient_sync import Algorithm
from trainhall.parallelism.data_parallel.hook import GradientHook
from trainhall.parallelism.strategy import Tools
from trainhall.training.rank import main as rank_main

CPU = torch.device("cpu")
DIES = 1
TIMEOUT = timedelta(seconds=60)
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)


def as_rank(work: Callable[[int], None]) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=CPU, namespace="test"):
        work(environment.rank)
    return 0


def nothing(*_: Any) -> None:
    """Stands for what a training loop gives a strategy."""


def hook_of(algorithm: str, model: nn.Module) -> GradientHook:
    exchange = open_exchange(algorithm, CPU, timeout=TIMEOUT)
    hook = GradientHook(exchange, Dense(), dict(model.named_parameters()), CPU)
    hook.tools = Tools(nothing, nothing, nothing, nothing, nothing)  # type: ignore[arg-type]
    return hook


def spread(model: nn.Module, hook: GradientHook) -> nn.Module:
    return ddp.apply(model, device=CPU, bucket_mb=0.0005, hook=hook)


def plain_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(n, n + 3) for n in range(5, 20, 3))).double()


def gradients_of(model: nn.Module, called: nn.Module, step: int, rank: int) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(100 * step + rank)
    called(torch.randn(4, 5, dtype=torch.float64)).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def average(folder: Path) -> int:
    """Two backward passes with each algorithm; rank 0 writes down the number of buckets and
    the bytes that it has sent in a pass."""

    def work(rank: int) -> None:
        ranks = dist.get_world_size()
        for algorithm in ALGORITHMS:
            model = plain_model()
            wanted = [
                [sum(parts) / ranks for parts in zip(*each_rank, strict=True)]
                for each_rank in (
                    [gradients_of(model, model, step, other) for other in range(ranks)]
                    for step in range(2)
                )
            ]
            hook = hook_of(algorithm, model)
            called = spread(model, hook)
            for step in range(2):
                found = gradients_of(model, called, step, rank)
                hook.check()
                for a, b in zip(found, wanted[step], strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            if rank == 0:
                (folder / algorithm).write_text(f"{len(hook._layouts)} {hook.sent_bytes}")
            del hook, called, model
        gc.collect()
        eventually("no thread of a hook", lambda: threading.active_count() == 1)

    return as_rank(work)


def hosts(folder: Path) -> int:
    """Hosts of 3 and 1 ranks; with `odd` in the folder the launcher says 2 and 2 besides."""

    def work(rank: int) -> None:
        local, size = (rank, 3) if rank < 3 else (0, 1)
        if (folder / "odd").exists() and rank == 2:
            local, size = 0, 2
        os.environ |= {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(size)}
        for algorithm in ("hierarchical", "parameter_server"):
            try:
                exchange = open_exchange(algorithm, CPU, timeout=TIMEOUT)
            except RankEnvironmentError as error:
                (folder / f"{rank}.txt").write_text(str(error))
                continue
            tensor = torch.full((5,), float(rank))
            exchange.sum(tensor)
            assert tensor.eq(6).all()
            rows = exchange.gather(torch.tensor([rank, -rank]))
            assert rows.tolist() == [[r, -r] for r in range(4)]

    return as_rank(work)


def lose_one(folder: Path) -> int:
    """One rank dies before its second backward pass; the others write down their errors."""

    def work(rank: int) -> None:
        model = plain_model()
        hook = hook_of("ring", model)
        called = spread(model, hook)
        gradients_of(model, called, 0, rank)
        hook.check()
        if rank == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            gradients_of(model, called, 1, rank)
            hook.check()
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            (folder / f"{rank}.txt").write_text(message, encoding="utf-8")
        os._exit(0)  # ranks that wait for this one notice

    return as_rank(work)


class OneBucket:
    """What DDP gives a hook."""

    def __init__(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        self._parameter, self._gradient = parameter, gradient

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return False  # there is no backward pass

    def buffer(self) -> Tensor:
        return self._gradient

    def gradients(self) -> list[Tensor]:
        return [self._gradient]

    def parameters(self) -> list[Tensor]:
        return [self._parameter]


def differ(folder: Path) -> int:
    """Rank 1's bucket is larger; every rank writes down its error and its gradients."""

    def work(rank: int) -> None:
        for algorithm in ("tree", "native"):
            parameter = nn.Parameter(torch.zeros(4 + rank))
            hook = hook_of(algorithm, nn.ParameterList([parameter]))
            gradient = torch.ones(4 + rank)
            bucket = cast(dist.GradBucket, OneBucket(parameter, gradient))
            hook.combine(None, bucket).wait()
            try:
                hook.check()
            except ValueError as error:
                (folder / f"{algorithm}{rank}.txt").write_text(str(error), encoding="utf-8")
            assert gradient.eq(1).all(), "it was combined"

    return as_rank(work)


def die_in_a_job(folder: Path) -> int:
    """Rank 1 of the folder's job is killed when its second step's gradients are due."""
    combine = GradientHook._average

    def dies(self: GradientHook, bucket: Bucket) -> None:
        if os.environ["RANK"] == str(DIES) and bucket.index in self._layouts:
            os.kill(os.getpid(), signal.SIGKILL)
        combine(self, bucket)

    GradientHook._average = dies  # type: ignore[method-assign]
    return rank_main()
