"""`trainhall.Trainer`: the parts of Trainhall's own loop for a loop that is written by hand."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from pydantic import ValidationError
from torch import Tensor, nn
from torch.optim import Optimizer

from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.data_parallel.gradient_sync import GradientSyncError
from trainhall.parallelism.data_parallel.gradient_sync import check as check_sync
from trainhall.parallelism.data_parallel.hook import HookedReplicas
from trainhall.parallelism.pipelining.batches import pieces, to_device
from trainhall.training.common.step_clock import StepClock
from trainhall.training.gradients.capture import Gradient, GradientWatch
from trainhall.training.loop.compression_state import PART, CompressionState
from trainhall.training.loop.optimizer_step import OptimizerStep
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.sdk import api
from trainhall.training.sdk.together import host_group
from trainhall.training.spec import GradientSync, Precision
from trainhall.training.spec.problems import error_message

LossFunction = Callable[[nn.Module, Any], Tensor]
"""The mean loss of a model over a batch."""
STRATEGIES = ("ddp",)


@dataclass(frozen=True)
class StepResult:
    """The measurements of one step, as scalars on the device: nothing waits for a GPU."""

    step: int
    loss: Tensor
    """Mean over this rank's batch."""
    gradient_norm: Tensor
    """Global L2 norm of the averaged gradient, before it was clipped."""


class _WatchCalls(GradientWatch):
    def __init__(self, step: int, on_gradient: Callable[[Gradient], None]) -> None:
        super().__init__(step)
        self._on_gradient = on_gradient

    def accumulated(self, gradient: Gradient) -> None:
        self._on_gradient(gradient)


class Trainer:
    """A model, spread over the ranks, and its optimizer.

    It joins the process group by `trainhall.init()`, unless that was done, and moves the model to
    this rank's device.

        trainer = Trainer(model, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3))
        for batch in batches:
            result = trainer.train_step(batch, loss_fn)

    Args:
        model: a plain model, the same on all ranks but for its weights: rank 0's win.
        optimizer: one over the model's parameters, or a function that makes one of them.
        strategy: how the model is spread; `ddp` so far.
        precision: `fp32`, `bf16` or `fp16` of the forward and backward pass.
        gradient_accumulation: micro-batches into which a batch is cut. Gradients are averaged over
            the ranks with the last one alone.
        gradient_clip: largest global L2 norm of the gradient; larger ones are scaled down to it.
        device: another device than this rank's own.
        gradient_sync: how gradients are averaged over the ranks, by the keys and values that a job
            spec has under this name: `algorithm`, `compression`, `ratio`, `bucket_mb`.

    Raises:
        ValueError: naming what is allowed.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Optimizer | Callable[[Any], Optimizer],
        strategy: str = "ddp",
        precision: str = "fp32",
        gradient_accumulation: int = 1,
        gradient_clip: float | None = None,
        device: torch.device | str | None = None,
        gradient_sync: Mapping[str, Any] | None = None,
    ) -> None:
        _check_choice("strategy", strategy, STRATEGIES)
        _check_choice("precision", precision, tuple(Precision))
        if not isinstance(gradient_accumulation, int) or gradient_accumulation < 1:
            raise ValueError(
                f"gradient_accumulation must be 1 or more, not {gradient_accumulation!r}"
            )
        synchronised = _gradient_sync(gradient_sync or {})
        if gradient_clip is not None:
            _check_positive("gradient_clip", gradient_clip)
        context = api.init()
        self.device: torch.device = torch.device(context.device if device is None else device)
        self.plain_model = model.to(self.device)
        """The model itself, for its weights and for evaluation."""
        spread = _spread(self.plain_model, self.device, synchronised, Precision(precision))
        self.model: nn.Module = spread.called
        """The model as it is trained: call it within a loss function alone."""
        parameters = list(spread.parameters.values())
        if not parameters:
            raise ValueError("the model has no parameter that requires a gradient")
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else optimizer(parameters)
        self.gradient_accumulation = gradient_accumulation
        self.step = 0
        """Steps taken."""
        self._on_gradient: Callable[[Gradient], None] | None = None
        # The script may have joined over NCCL alone, and what is saved lies in host memory.
        self._sync = CompressionState(spread, host_group(_world_size()))
        self._precision = MixedPrecision(Precision(precision), self.device)
        self._optimizer_step = OptimizerStep(
            spread,
            self.optimizer,
            self._precision,
            StepClock(),
            gradient_clip=gradient_clip,
        )

    def train_step(self, batch: Any, loss_fn: LossFunction) -> StepResult:
        """Take one optimizer step over this rank's batch.

        Args:
            batch: a tensor, or tuples, lists and mappings of tensors, with the samples along
                dimension 0; it is moved to the device.
            loss_fn: called with the model and each micro-batch, under the precision's autocast.

        Raises:
            ValueError: the batch cannot be cut into `gradient_accumulation` equal parts.
        """
        rounds = self.gradient_accumulation

        def loss_of(model: nn.Module, part: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            return loss_fn(model, part), ()

        watch = None if self._on_gradient is None else _WatchCalls(self.step + 1, self._on_gradient)
        (loss,), norm = self._optimizer_step.run(
            self._parts(batch, rounds), rounds, loss_of, watch=watch
        )
        self.step += 1
        return StepResult(self.step, loss, norm)

    @contextmanager
    def watch_gradients(self, on_gradient: Callable[[Gradient], None]) -> Iterator[None]:
        """Within it `on_gradient` is called with each parameter's gradient of every step.

        It is called right after this rank has accumulated the gradient, in the order of the
        backward pass and before it is averaged over the ranks; with `gradient_accumulation` once
        for each micro-batch. Outside it nothing is hooked.

            with trainer.watch_gradients(lambda g: print(g.step, g.name, float(g.norm))):
                trainer.train_step(batch, loss_fn)
        """
        before, self._on_gradient = self._on_gradient, on_gradient
        try:
            yield
        finally:
            self._on_gradient = before

    def state_dict(self, *, unsent: bool = False) -> dict[str, Any]:
        """Return everything to resume from, for `trainhall.checkpoint.save`.

        Args:
            unsent: with what a compression of gradients has not sent yet, which every rank has its
                own of: all ranks call it then, and rank 0's result has it.
        """
        state = {
            "model": self.plain_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self._precision.state(),
            "step": self.step,
        }
        if unsent:
            state[PART] = self._sync.snapshot()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`'s result, on any number of ranks.

        What had not been sent is divided among them, where there are others than those that saved
        it; without compression, or without other ranks, the next gradient has it.
        """
        self.plain_model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._precision.restore(state["precision"])
        self.step = int(state["step"])
        if PART in state:
            self._sync.take(state[PART])

    def _parts(self, batch: Any, rounds: int) -> list[Any]:
        # Tokenizers give mappings that are no dicts.
        moved = to_device(dict(batch) if isinstance(batch, Mapping) else batch, self.device)
        if rounds == 1:
            return [moved]
        return pieces(moved, rounds, "gradient_accumulation")


def _gradient_sync(given: Mapping[str, Any]) -> GradientSync:
    try:
        sync = GradientSync.model_validate(dict(given))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))} {error_message(e)}" for e in error.errors()
        )
        raise ValueError(f"gradient_sync: {problems}") from None
    if sync.measure_links:
        raise ValueError("gradient_sync: measure_links is for built-in tasks; leave it out")
    return sync


def _spread(
    model: nn.Module, device: torch.device, synchronised: GradientSync, precision: Precision
) -> Replicas:
    options = synchronised.options()
    bucket_mb = synchronised.bucket_mb
    ranks = _world_size()
    loss_scaled = precision is Precision.FP16
    try:
        check_sync(options, "ddp", ranks, reproducible=False, loss_scaled=loss_scaled)
    except GradientSyncError as error:
        raise ValueError(f"{'.'.join(error.field)}: {error.value!r} {error}") from None
    if options.is_native:
        return Replicas(model, device=device, bucket_mb=bucket_mb, timed=False)
    return HookedReplicas(model, options, device=device, bucket_mb=bucket_mb)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _check_choice(name: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; {given!r} is not")


def _check_positive(name: str, given: float) -> None:
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < given < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {given!r}")
