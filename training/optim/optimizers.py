"""Optimizers, their learning rate over steps, and their state by parameter name."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from trainhall.parallelism.strategy import Strategy
from trainhall.training.spec import LearningRateSchedule, TrainingSpec


def build_optimizer(parameters: Iterable[nn.Parameter], spec: TrainingSpec) -> Optimizer:
    """Build the optimizer of the spec; fused, so that a step is one call and fp16 needs no wait.

    It has its state from the start, of all parameters: zeros.
    """
    group: dict[str, Any] = {"params": list(parameters)}  # torch takes an empty group, but no list
    optimizer: SGD | AdamW
    match spec.optimizer:
        case "sgd":
            optimizer = SGD(
                [group],
                lr=spec.learning_rate,
                momentum=spec.momentum,
                weight_decay=spec.weight_decay,
                fused=True,
            )
        case "adamw":
            optimizer = AdamW(
                [group], lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
            )
    _make_state(optimizer)
    return optimizer


def learning_rate(step: int, *, peak: float, total: int, schedule: LearningRateSchedule) -> float:
    """Return the rate of step `step` (from 1) of `total`.

    With w warm-up steps: `peak · step / w` up to step w, then `constant`; or `cosine`, from `peak`
    after step w down to `peak · final_ratio` at step `total`; or `step`, which multiplies by
    `decay_factor` after every `decay_every` steps after w.
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
    """Return the optimizer's tensors as `<parameter name>.<state name>`, by reference.

    What is not here (rates, betas) comes from the spec, so a checkpoint fits another strategy.
    """
    state: dict[str, Tensor] = {}
    for name, parameter in strategy.parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                state[f"{name}.{key}"] = strategy.like_parameter(name, value)
    return state


def lacking_state(state: Iterable[str], saved: Iterable[str]) -> set[str]:
    """Return the names in `state` of parameters of which `saved` has nothing, though it has of
    others.

    Once a parameter that had not had a gradient yet had no state, and its checkpoints have none:
    it is zeros.

    Args:
        state: as `named_state` names it.
        saved: likewise.
    """
    known = {name.rpartition(".")[0] for name in saved}
    return {name for name in state if known and name.rpartition(".")[0] not in known}


def _make_state(optimizer: SGD | AdamW) -> None:
    """Make what torch's first step would make.

    It makes the state of parameters with a gradient alone, so that it would not be the same on all
    ranks, and not what a checkpoint is read into. And of a first fp16 step that is left out it
    keeps a momentum that nothing was ever written to.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if isinstance(optimizer, AdamW):
                optimizer.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
            elif group["momentum"]:
                optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
