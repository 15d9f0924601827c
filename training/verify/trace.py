"""Training that writes down what every step computed, so that strategies can be compared.

In float32 the order of additions alone makes runs differ by more than many bugs would; in float64
it does not.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from trainhall.parallelism.pipelining.batches import mapped
from trainhall.parallelism.strategy import Strategy
from trainhall.training.gradients.capture import Gradient, GradientWatch
from trainhall.training.link.launch import Command, TracePlan
from trainhall.training.link.status import EXIT_COMPLETED
from trainhall.training.loop.loop import Loop
from trainhall.training.loop.nonfinite_guard import NonFiniteLossError
from trainhall.training.process.rank_context import RankContext
from trainhall.training.verify.compare import RunComparator
from trainhall.training.verify.snapshot import Reference, Snapshot
from trainhall.training.verify.tolerance import tolerance

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def run(context: RankContext) -> int:
    """Take the launch's steps and record them, or compare them with recorded ones.

    All ranks of the joined process group call it; rank 0 writes.
    """
    plan = context.launch.trace
    assert plan is not None
    # Models are built in it, and the optimizer's state follows them.
    torch.set_default_dtype(_DTYPES[plan.dtype])
    loop = TracedLoop(context, plan)
    reference = Reference(Path(plan.reference))
    writes = context.environment.rank == 0
    if plan.record:
        model = loop.strategy.model
        normed = any(isinstance(module, _BatchNorm) for module in model.modules())
        for snapshot in loop.snapshots():
            if not math.isfinite(snapshot.loss):
                raise NonFiniteLossError(
                    f"the loss is {snapshot.loss} at step {snapshot.step}, and nothing can be "
                    "compared with that; lower training.learning_rate, or compare fewer steps"
                )
            if writes:
                if snapshot.step == 1:
                    order = list(snapshot.gradients)
                    reference.begin(list(model.state_dict()), order, batch_norm=normed)
                reference.write(snapshot)
        return EXIT_COMPLETED
    comparator = None
    if writes:
        allowed = tolerance(plan.dtype, context.launch.spec.gradient_sync.compression)
        recorded = reference.model()
        comparator = RunComparator(allowed, recorded["names"], recorded["backward_order"])
    for snapshot in loop.snapshots():
        if comparator is not None:
            comparison = comparator.compare(reference.read(snapshot.step), snapshot)
            with context.folder.comparison.open("a") as file:
                file.write(json.dumps(comparison) + "\n")
    return EXIT_COMPLETED


class TracedLoop(Loop):
    """Steps of training and nothing between them."""

    def __init__(self, context: RankContext, plan: TracePlan) -> None:
        super().__init__(context)
        self._dtype = _DTYPES[plan.dtype]
        # The micro-batches of one rank that are those of the first of `parts` ranks.
        self._counted = self.training.gradient_accumulation // plan.parts
        self._seen: _Gradients | None = None
        # Ranks draw from streams of their own, so with dropout no two meshes compute the same.
        for module in self.strategy.model.modules():
            if isinstance(module, _DropoutNd):
                module.p = 0.0
        if plan.perturbed:
            draw = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for weight in self.strategy.parameters.values():
                    changes = torch.randn(weight.shape, generator=draw, dtype=weight.dtype)
                    weight.mul_(1 + plan.perturbed * changes.to(weight.device))

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the steps, as all ranks take them; the tensors are rank 0's alone."""
        while self.state.step < self.total_steps:
            self.train_step()
            result = self.step_sync.exchange(
                self.state.step, self.recorder.rows(), seconds=self.recorder.seconds_column,
                command=Command.RUN, save=False, peak_memory_bytes=0.0,
            )  # fmt: skip
            columns = self.recorder.write(result)
            self.strategy.share_buffers()
            weights = _copies(self.strategy.full_weights(), keeps=self.rank == 0)
            yield Snapshot(
                self.state.step,
                columns["loss"][0],
                columns["gradient_norm"][0],
                self._gradients(),
                weights,
            )

    def batches(self) -> Iterator[Any]:
        for i, batch in enumerate(super().batches()):
            before = [] if i < self._counted else _buffers(self.strategy.model)
            yield mapped(batch, self._cast)
            for buffer, kept in before:
                buffer.copy_(kept)

    def watch(self, step: int) -> GradientWatch:
        self._seen = _Gradients(step, keeps=self.rank == 0)
        return self._seen

    def _gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the last step, in the order in which they were accumulated."""
        assert self._seen is not None
        order = {name: i for i, name in enumerate(self._seen.order)}
        whole = self._seen.whole.items()
        return dict(sorted(whole, key=lambda each: order.get(each[0], len(order))))

    def _cast(self, leaf: Any) -> Any:
        floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.to(self._dtype) if floating else leaf


class _Gradients(GradientWatch):
    """The gradients of a step, whole, and the order in which the backward pass reached them."""

    def __init__(self, step: int, *, keeps: bool) -> None:
        super().__init__(step)
        self._keeps = keeps
        self.order: dict[str, None] = {}
        self.whole: dict[str, Tensor] = {}

    def accumulated(self, gradient: Gradient) -> None:
        # Shared weights are complete only with the last layer that uses them.
        self.order.pop(gradient.name, None)
        self.order[gradient.name] = None

    def averaged(self, strategy: Strategy) -> None:
        self.whole = _copies(strategy.full_gradients(), keeps=self._keeps)


def _copies(whole: Iterator[tuple[str, Tensor]], *, keeps: bool) -> dict[str, Tensor]:
    """Return the tensors in host memory, on the rank that keeps them."""
    kept = {}
    for name, tensor in whole:  # on every rank: it is a collective
        if keeps and tensor.is_floating_point():
            # Tied weights share their memory, which the format of files refuses.
            kept[name] = tensor.detach().to("cpu", copy=True).contiguous()
    return kept


def _buffers(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return the buffers with copies of what they hold."""
    return [(buffer, buffer.clone()) for buffer in model.buffers()]
