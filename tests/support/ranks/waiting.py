"""Ranks that tell what they wait for in a step, rank 1 being late on purpose.

Rank 1 stops before its layer in the middle until rank 0 has begun to wait once more than it has
itself: rank 0 is then in the exchange that both come to next.
"""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.choose import StrategyConfig, apply
from trainhall.parallelism.declaration import Declaration, Split
from trainhall.parallelism.degrees import Degrees
from trainhall.parallelism.strategy import Tools

CPU = torch.device("cpu")
STRATEGIES: dict[str, tuple[str, Degrees]] = {
    "fsdp": ("fsdp", Degrees(shard=2)),
    "tensor": ("tensor", Degrees(tensor=2)),
}


class Late(nn.Module):
    """Hands on what it is given, once `stop` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[], None] = lambda: None

    def forward(self, x: Tensor) -> Tensor:
        self.stop()
        return x.clone()


def step(folder: Path) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=CPU, namespace="waits"):
        measured = {name: _waits(name, environment.rank) for name in STRATEGIES}
    (folder / f"{environment.rank}.json").write_text(json.dumps(measured))
    return 0


def _waits(name: str, rank: int) -> dict[str, Any]:
    """From when to when this rank has waited, and when rank 1 went on."""
    kind, degrees = STRATEGIES[name]
    late = Late()
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), late, nn.Linear(8, 8))
    declaration = Declaration(
        layers=(("0",), ("1",), ("3",)), splits=(Split("1", "3", parts=8, what="units"),)
    )
    config = StrategyConfig(
        strategy=kind, degrees=degrees, bucket_mb=25, reshard_after_forward=True,  # type: ignore[arg-type]
        sequence_parallel=False, schedule="1f1b", microbatches=1,
    )  # fmt: skip
    strategy = apply(config, model, declaration, CPU)
    store = dist.distributed_c10d._get_default_store()
    asked_for = count(1)
    waited: list[tuple[float, float]] = []
    continued: list[float] = []

    def now() -> float:
        # Every moment that is asked for is the begin of a wait, or its end.
        moment = monotonic()
        store.set(f"{name} {rank} {next(asked_for)}", "")
        return moment

    def stop() -> None:
        if rank == 1:
            store.wait([f"{name} 0 {2 * len(waited) + 1}"])
            continued.append(monotonic())

    late.stop = stop
    tools = Tools(
        autocast=nullcontext, scale=lambda loss: loss,
        forward_ended=lambda: None, backward_ended=lambda: None, communication_ended=lambda: None,
        now=now, waited=lambda first, last: waited.append((first, last)),
    )  # fmt: skip
    x = torch.randn(4, 8)
    strategy.backward(
        x, lambda model, x: (model(x).square().mean(), ()), tools, rounds=1, last=True
    )
    moments = [moment for span in waited for moment in span]
    assert moments == sorted(moments), "no wait lies within another"
    return {"waited": waited, "continued": continued, "tells": strategy.reports_sending}
