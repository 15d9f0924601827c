"""Jobs as a team submits them: sizes, lengths and names of every sort, and what befalls some."""

import random
from dataclasses import dataclass, field
from typing import Any

from trainhall.cluster.experiments.spec import ExperimentSpec, validate_experiment
from trainhall.cluster.simulator.ranks import Fate
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec

SHARED = "/mnt/shared/checkpoints"
PRIORITY = -10
"""Priority of most jobs, so that those that a user submits come first."""


@dataclass(frozen=True)
class Order:
    """A job to submit, and what goes wrong in its attempts."""

    spec: JobSpec
    fates: dict[int, Fate] = field(default_factory=dict)
    """By attempt."""


def model(
    name: str,
    workers: int,
    *,
    steps: int,
    seconds: float,
    rate: float = 3e-4,
    shared: bool = True,
    priority: int = PRIORITY,
    restarts: int = 3,
    every: int | None = None,
    strategy: str = "ddp",
    regroups: bool = True,
) -> JobSpec:
    """Return a larger model's job: the synthetic task, `seconds` a step.

    Args:
        regroups: its ranks wait for one that has failed to be replaced.
    """
    return _spec(
        name,
        workers,
        task={
            "name": "synthetic",
            "params": {
                "samples": 2_000_000,
                "features": 1024,
                "hidden": [4096, 4096],
                "step_seconds": seconds,
            },
        },
        training={
            "steps": steps,
            "global_batch_size": 64 * workers,
            "learning_rate": rate,
            "learning_rate_schedule": {"kind": "cosine", "warmup_steps": max(5, steps // 25)},
            "precision": "bf16",
            "gradient_clip": 1.0,
            "evaluate_every_steps": max(10, steps // 8),
        },
        checkpoint={
            "every_steps": every or max(10, steps // 3),
            **({"path": SHARED} if shared else {}),
        },
        recovery={"max_restarts": restarts, **({} if regroups else {"regroup_seconds": 0})},
        priority=priority,
        parallelism={"strategy": strategy},
    )


def digits(name: str, workers: int, *, steps: int, rate: float) -> JobSpec:
    """Return a job on handwritten digits: quick, and with an accuracy."""
    return _spec(
        name,
        workers,
        task={"name": "digits", "params": {"hidden": [256, 128], "dropout": 0.1}},
        training={
            "steps": steps,
            "global_batch_size": 64,
            "learning_rate": rate,
            "learning_rate_schedule": {"kind": "cosine", "warmup_steps": 40},
            "evaluate_every_steps": steps // 6,
        },
        checkpoint={"every_steps": steps // 3},
    )


def sweep(name: str, workers: int) -> ExperimentSpec:
    """Return a sweep on handwritten digits whose poor runs are stopped early."""
    return validate_experiment(
        {
            "name": name,
            "kind": "sweep",
            "job": {
                "name": name,
                "task": {"name": "digits", "params": {"dropout": 0.1}},
                "resources": {"workers": workers, "device": "cuda"},
                "training": {"global_batch_size": 64, "evaluate_every_steps": 30},
                "priority": PRIORITY,
                "user": "ada",
                "project": _PROJECTS["ada"],
            },
            "space": {"training.learning_rate": [1e-4, 1e-3, 1e-2, 1e-1]},
            "method": "grid",
            "objective": {"metric": "eval_accuracy"},
            "early_stopping": {"asha": {"min_steps": 60, "max_steps": 180}},
            "parallel": 2,
        }
    )


def script(name: str, workers: int, path: str, *args: str, restarts: int = 0) -> JobSpec:
    return _spec(
        name,
        workers,
        script={"path": path, "args": list(args)},
        recovery={"max_restarts": restarts},
    )


def _spec(name: str, workers: int, **parts: Any) -> JobSpec:
    resources = {"workers": workers, "device": "cuda"}
    # Whose a job is follows from what it is about, so that chance stays what it was.
    user = _USERS[sum(name.partition(" ")[0].encode()) % len(_USERS)]
    user_and_project = {"user": user, "project": _PROJECTS[user]}
    return validate_spec(
        {"name": name, "resources": resources, "priority": PRIORITY, **user_and_project, **parts}
    )


_PROJECTS = {"ada": "vision", "grace": "speech", "edsger": "ranking", "barbara": "ranking"}
_USERS = tuple(_PROJECTS)
_TOPICS = (
    "retrieval tower", "speech encoder", "ranker", "vision transformer", "ocr decoder",
    "click model", "text encoder", "segmentation", "time series mixer", "graph embeddings",
)  # fmt: skip
_CHANGES = (
    "", " baseline", " wider", " no dropout", " rotary", " seed {n}", " v{n}", " batch x2",
    " nightly", " longer warm-up",
)  # fmt: skip


def arriving(chance: random.Random, number: int) -> Order:
    """Return the next job to submit: two to eight minutes of work for a part of the cluster, so
    that a day of them stays small."""
    kind = chance.random()
    n = 1 + number % 9
    if kind < 0.15:
        spec = digits(
            f"digits lr={n % 4 + 1}e-3", 2, steps=600, rate=(n % 4 + 1) * 1e-3
        )  # fmt: skip
        return Order(spec)
    if kind < 0.28:
        path = chance.choice(("/srv/jobs/evaluate.py", "/srv/jobs/export.py", "/srv/jobs/tune.py"))
        spec = script(path.rpartition("/")[2], chance.choice((1, 1, 2)), path, "--seed", str(n))
        return Order(spec, {1: Fate("error", 9)} if chance.random() < 0.25 else {})
    workers = chance.choices((1, 2, 4, 8, 16), (3, 6, 6, 2, 1))[0]
    seconds = round(chance.uniform(2.0, 5.0), 1)
    steps = round(chance.uniform(150, 460) / seconds)
    fates = _fates(chance, workers, steps)
    name = chance.choice(_TOPICS) + chance.choice(_CHANGES).format(n=n)
    spec = model(
        name,
        workers,
        steps=steps,
        seconds=seconds,
        rate=chance.choice((1e-4, 3e-4, 1e-3)),
        shared=chance.random() < 0.7,
        priority=PRIORITY + chance.choices((0, 2, 5), (8, 1, 1))[0],
        regroups=all(fate.kind == "killed" for fate in fates.values()),
    )
    return Order(spec, fates)


def _fates(chance: random.Random, workers: int, steps: int) -> dict[int, Fate]:
    """Draw the faults of one job in five."""
    rank, step = chance.randrange(workers), max(3, round(steps * chance.uniform(0.2, 0.8)))
    kind = chance.random()
    if kind < 0.10:
        return {1: Fate("killed", step, rank)}
    if kind < 0.13:
        return {1: Fate("diverges", step)}
    if kind < 0.16:
        # It never fits, so no restart gets anywhere.
        return {attempt: Fate("out of memory", 1, rank) for attempt in range(1, 10)}
    if kind < 0.20:
        return {1: Fate("error", step, rank)}
    return {}
