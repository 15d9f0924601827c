"""Ranks that train a few steps under PyTorch's own memory tracker, and count what stages send."""

import json
import os
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._tools.mem_tracker import MemTracker

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism import choose
from trainhall.parallelism.pipelining import pipeline
from trainhall.training.common.step_clock import StepClock
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.loop.optimizer_step import OptimizerStep
from trainhall.training.optim.optimizers import build_optimizer
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.planning.planner import traced_of
from trainhall.training.tasks import build_task

STEPS = 2


class _TotalTracker(MemTracker):
    """Without hooks on modules: a pipeline learns its shapes by `autograd.grad`, which fails under
    them. What they tell is which module memory belongs to, not how much there is."""

    def __enter__(self) -> "_TotalTracker":
        self._mod_tracker = _NoModules()  # type: ignore[assignment]
        super().__enter__()
        return self


class _NoModules:
    parents = frozenset({"Global"})
    is_bw = False

    def register_user_hooks(self, *_: Any, **__: Any) -> None:
        pass

    clear_user_hooks = __enter__ = __exit__ = register_user_hooks


def measured(path: Path) -> int:
    """As `_measure`, with what went wrong in the rank's output."""
    try:
        _measure(path)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _measure(path: Path) -> None:
    """Write this rank's peak, from building the model on, to `peak-<rank>.json`, and the bytes that
    it hands on to other stages in a step to `sent-<rank>.json`."""
    torch.set_num_threads(1)
    folder = AttemptFolder(path)
    environment = RankEnvironment.read(os.environ)
    sent = _count_sent()
    spec = Launch.model_validate_json(folder.launch.read_bytes()).spec
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="memory"):
        task = build_task(spec)
        reader = Reader(task, task.train_data, 0)
        size = spec.training.global_batch_size
        model = task.build_model()
        tracker = _TotalTracker()
        tracker.track_external(model)
        with tracker:
            strategy = choose.apply(traced_of(spec), model, task.declaration(), device)
            size //= strategy.num_parts
            optimizer = build_optimizer(strategy.parameters.values(), spec.training)
            step = OptimizerStep(
                strategy,
                optimizer,
                MixedPrecision(spec.training.precision, device, replicated=strategy.replicated),
                StepClock(),
                gradient_clip=spec.training.gradient_clip,
                measures=len(task.metric_names),
            )
            for _ in range(STEPS):
                batch = reader.read(Request(0, torch.arange(size) % len(task.train_data)))
                tracker.reset_mod_stats()  # the tracker asks for it between passes; the peak stays
                step.run([batch] * strategy.held, 1, task.loss)
    peak = tracker.get_tracker_snapshot("peak")[device]["Total"]
    (path / f"peak-{environment.rank}.json").write_text(json.dumps(peak))
    (path / f"sent-{environment.rank}.json").write_text(json.dumps(sum(sent) / STEPS))


def _count_sent() -> list[int]:
    """The sizes of all messages between stages, from now on."""
    sizes: list[int] = []
    watched = pipeline._Stage._watched

    def counted(self: Any, sends: list[dist.P2POp]) -> list[dist.P2POp]:
        sizes.extend(send.tensor.numel() * send.tensor.element_size() for send in sends)
        return watched(self, sends)

    pipeline._Stage._watched = counted  # type: ignore[method-assign]
    return sizes
