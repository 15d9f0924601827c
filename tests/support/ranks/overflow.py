"""Ranks of an fp16 job, on one of which the gradients of two steps overflow, of the first too."""

import json
from pathlib import Path
from typing import Any

import torch
from support.ranks.trace import as_rank
from torch import Tensor

from trainhall.training.link.folder import AttemptFolder
from trainhall.training.loop.loop import Loop
from trainhall.training.process.rank_context import RankContext

STEPS, OVERFLOWS = 4, (1, 3)
RANK = 1


def in_a_part(path: Path) -> int:
    """An element of what the rank holds of the averaged gradient is infinite."""

    def plant(loop: Loop) -> None:
        unscale = loop.precision.unscale

        def overflowing(optimizer: Any) -> None:
            if loop.state.step + 1 in OVERFLOWS:
                parameter = next(p for p in loop.strategy.parameters.values() if p.numel())
                assert parameter.grad is not None
                parameter.grad.view(-1)[0] = torch.inf
            unscale(optimizer)

        loop.precision.unscale = overflowing  # type: ignore[method-assign]

    return _run(path, plant)


def in_the_loss(path: Path) -> int:
    """The rank's own loss is infinite."""

    def plant(loop: Loop) -> None:
        loss_of = loop.task.loss

        def overflowing(model: Any, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            loss, measures = loss_of(model, batch)
            return (loss * torch.inf if loop.state.step + 1 in OVERFLOWS else loss), measures

        loop.task.loss = overflowing  # type: ignore[method-assign]

    return _run(path, plant)


def _run(path: Path, plant: Any) -> int:
    def work(context: RankContext) -> None:
        loop = Loop(context)
        loop.resume()
        if context.environment.rank == RANK:
            plant(loop)
        for _ in range(STEPS):
            loop.train_step()
        states = loop.optimizer.state.values()
        facts = {
            "scale": loop.precision.state()["scale"],
            "steps": sorted({int(state["step"]) for state in states}),
            "finite": all(bool(p.isfinite().all()) for p in loop.strategy.parameters.values()),
        }
        folder = AttemptFolder(path).rank(context.environment.rank)
        (folder / "facts.json").write_text(json.dumps(facts))

    return as_rank(path, work)
