"""Optimizers, their learning rate over steps, and their state by parameter name."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from trainhall.parallelism.strategy import Strategy
from trainhall.training.fused import FusedAdamW
from trainhall.training.spec import LearningRateSchedule, TrainingSpec


def build_optimizer(parameters: Iterable[nn.Parameter], spec: TrainingSpec) -> Optimizer:
    """The optimizer of the spec; fused, so that a step is one call and fp16 needs no wait."""
    group: dict[str, Any] = {"params": list(parameters)}  # torch takes an empty group, but no list
    match spec.optimizer:
        case "sgd":
            return SGD(
                [group],
                lr=spec.learning_rate,
                momentum=spec.momentum,
                weight_decay=spec.weight_decay,
                fused=True,
            )
        case "adamw":
            return FusedAdamW([group], lr=spec.learning_rate, weight_decay=spec.weight_decay)


def learning_rate(step: int, *, peak: float, total: int, schedule: LearningRateSchedule) -> float:
    """The rate of step `step` (from 1) of `total`.

    With w warm-up steps: `peak · step / w` up to step w, then `constant`; or `cosine`, from `peak`
    behind step w down to `peak · final_ratio` at step `total`; or `step`, which multiplies by
    `decay_factor` after every `decay_every` steps behind w.
    """
    after = step - schedule.warmup_steps
    if after <= 0:
        return peak * step / schedule.warmup_steps
    match schedule.kind:
        case "constant":
            return peak
        case "cosine":
            progress = after / (total - schedule.warmup_steps)
            share = (1 + math.cos(math.pi * progress)) / 2
            return peak * (schedule.final_ratio + (1 - schedule.final_ratio) * share)
        case "step":
            if schedule.decay_every is None:
                raise ValueError("a step schedule has decay_every")
            return peak * schedule.decay_factor ** ((after - 1) // schedule.decay_every)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def named_state(optimizer: Optimizer, strategy: Strategy) -> dict[str, Tensor]:
    """The optimizer's tensors as `<parameter name>.<state name>`, by reference.

    What is not here (rates, betas) comes from the spec, so a checkpoint fits another strategy.
    """
    state: dict[str, Tensor] = {}
    for name, parameter in strategy.parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                state[f"{name}.{key}"] = strategy.like_parameter(name, value)
    return state


def allocate_state(optimizer: Optimizer) -> None:
    """Make the tensors that the first step would make, so that a checkpoint can be read into them.

    A step with gradients and rate of zero leaves the weights as they are.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    parameters: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizer, 0.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
