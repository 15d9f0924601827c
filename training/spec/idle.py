"""Options that have no effect; a user who sets one expects something of it.

Only options that users set are checked, when they submit them. A stored spec, or one made by
`auto`, `verify` or a restore, may carry options of another strategy.
"""

from collections.abc import Iterator
from typing import Any

from trainhall.parallelism.degrees import OPTIONS
from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.job import JobSpec

Idle = tuple[tuple[str, ...], Any, str]
"""Path of the option, its value, and the message."""


def idle_options(spec: JobSpec) -> Iterator[Idle]:
    """Yield the options of a spec that differ from their default and have no effect."""
    yield from _of_parallelism(spec)
    if spec.task is not None:
        yield from _of_training(spec)


def _of_parallelism(spec: JobSpec) -> Iterator[Idle]:
    strategy = spec.parallelism.strategy
    if strategy == "auto":
        return
    for name, strategies in OPTIONS.items():
        where, given = ("parallelism", name), _given(spec.parallelism, name)
        if given is None:
            continue
        if spec.task is None:
            yield where, given, "is for tasks; a script distributes its own model: leave it out"
        elif strategy not in strategies:
            yield where, given, _for_strategies(strategies, strategy)
    for name in ("bucket_mb", "measure_links"):
        given = _given(spec.parallelism.gradient_sync, name)
        if given is not None and (spec.task is None or strategy != "ddp"):
            advice = "is for tasks; a script wraps its own model: leave it out"
            if spec.task is not None:
                advice = _for_strategies(("ddp",), strategy)
            yield ("parallelism", "gradient_sync", name), given, advice


def _for_strategies(strategies: tuple[str, ...], strategy: str) -> str:
    wanted = " or ".join(strategies)
    return (
        f"has no effect under strategy {strategy}; leave it out, or set parallelism.strategy to "
        f"{wanted}"
    )


def _of_training(spec: JobSpec) -> Iterator[Idle]:
    training = spec.training
    shards = _given(training, "logical_shards")
    if shards is not None and not training.reproducible:
        yield ("training", "logical_shards"), shards, (
            "has no effect without training.reproducible; leave it out, or set "
            "training.reproducible to true"
        )  # fmt: skip
    momentum = _given(training, "momentum")
    if momentum is not None and training.optimizer != "sgd":
        yield ("training", "momentum"), momentum, (
            f"has no effect with optimizer {training.optimizer}; leave it out, or set "
            "training.optimizer to sgd"
        )  # fmt: skip
    schedule = training.learning_rate_schedule
    for name, kind in (
        ("final_ratio", "cosine"),
        ("decay_every", "step"),
        ("decay_factor", "step"),
    ):
        given = _given(schedule, name)
        if given is not None and schedule.kind != kind:
            yield ("training", "learning_rate_schedule", name), given, (
                f"has no effect with kind {schedule.kind}; leave it out, or set "
                f"training.learning_rate_schedule.kind to {kind}"
            )  # fmt: skip


def _given(part: SpecModel, name: str) -> Any:
    """Return the value of an option, or None if it is the default."""
    value = getattr(part, name)
    return None if value == type(part).model_fields[name].default else value
