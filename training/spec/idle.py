"""Options of a job that would do nothing: whoever gives them expects something of them.

Only what people give is looked at, where they give it. A spec that is kept, or that `auto`,
`verify` or a restore makes of one, may carry options of another strategy along.
"""

from collections.abc import Iterator
from typing import Any

from trainhall.parallelism.degrees import OPTIONS
from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.job import JobSpec

Idle = tuple[tuple[str, ...], Any, str]
"""Where it is given, its value, and what to do."""


def idle_options(spec: JobSpec) -> Iterator[Idle]:
    """Those of a spec that say something else than their default, and nothing asks for."""
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
            yield where, given, "is for tasks; a script spreads its model itself, so leave it out"
        elif strategy not in strategies:
            yield where, given, _for_strategies(strategies, strategy)
    bucket_mb = _given(spec.parallelism.gradient_sync, "bucket_mb")
    if bucket_mb is not None and (spec.task is None or strategy != "ddp"):
        told = "is for tasks; a script wraps its model itself, so leave it out"
        if spec.task is not None:
            told = _for_strategies(("ddp",), strategy)
        yield ("parallelism", "gradient_sync", "bucket_mb"), bucket_mb, told


def _for_strategies(strategies: tuple[str, ...], strategy: str) -> str:
    return (
        f"is for strategy {' and '.join(strategies)}: under {strategy} it would do nothing; leave "
        f"it out, or set parallelism.strategy to {' or '.join(strategies)}"
    )


def _of_training(spec: JobSpec) -> Iterator[Idle]:
    training = spec.training
    shards = _given(training, "logical_shards")
    if shards is not None and not training.reproducible:
        yield ("training", "logical_shards"), shards, (
            "is for reproducible training: without it nothing is divided so; leave it out, or set "
            "training.reproducible to true"
        )  # fmt: skip
    momentum = _given(training, "momentum")
    if momentum is not None and training.optimizer != "sgd":
        yield ("training", "momentum"), momentum, (
            f"is for optimizer sgd: {training.optimizer} would ignore it; leave it out, or set "
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
                f"is for kind {kind}: {schedule.kind} would ignore it; leave it out, or set "
                f"training.learning_rate_schedule.kind to {kind}"
            )  # fmt: skip


def _given(part: SpecModel, name: str) -> Any:
    """The value of an option; None: it is the default, which a spec holds without being asked."""
    value = getattr(part, name)
    return None if value == type(part).model_fields[name].default else value
