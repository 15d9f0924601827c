"""The space of a scaling study: which numbers of workers run with which global batch size."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainhall.cluster.experiments.space import Dimension
from trainhall.training.spec.problems import problem_at
from trainhall.training.spec.resources import MAX_WORKERS
from trainhall.training.spec.training import TrainingSpec

WORKERS = "resources.workers"
BATCH = "training.global_batch_size"
STRONG: Final = "strong"
WEAK: Final = "weak"


def scaling_space(
    job: Mapping[str, Any], space: Mapping[str, Dimension], scaling: Sequence[str]
) -> dict[str, Dimension]:
    """Return the space of a scaling study, with the batch sizes of weak scaling in it; called by
    the validator of a spec, it refuses impossible numbers of workers and batch sizes."""
    workers = _workers(space)
    if WEAK not in scaling:
        if BATCH in space:
            raise problem_at(("space", BATCH), None,
                "strong scaling keeps the job's global batch size: leave it out",
            )  # fmt: skip
        return dict(space)
    if job.get("task") is None:
        raise problem_at("scaling", WEAK,
            "weak scaling sets training.global_batch_size, which a script does not have: use "
            "strong",
        )  # fmt: skip
    sizes = [weak_batch(job_batch(job), each, workers[0]) for each in workers]
    if None in sizes:
        raise problem_at("scaling", WEAK,
            f"the job's global batch of {job_batch(job):,} is the one of {workers[0]} workers, and "
            "cannot be scaled to all numbers of workers; choose a multiple of them",
        )  # fmt: skip
    given = space.get(BATCH)
    if given is not None and list(given.values or ()) != sizes:
        raise problem_at(("space", BATCH), None,
            f"follows from the job and the numbers of workers, {json.dumps(sizes)}: leave it out",
        )  # fmt: skip
    return {**space, BATCH: Dimension(sizes, values=tuple(sizes))}


def _workers(space: Mapping[str, Dimension]) -> list[int]:
    """Return the numbers of workers, ascending."""
    if (dimension := space.get(WORKERS)) is None:
        raise problem_at(("space", WORKERS), None,
            "is required for kind scaling: the numbers of workers, such as [1, 2, 4]",
        )  # fmt: skip
    values = dimension.values or ()
    for i, value in enumerate(values):
        if type(value) is not int or not 1 <= value <= MAX_WORKERS:
            raise problem_at(("space", WORKERS, i), json.dumps(value)[:80],
                f"must be a number of workers, from 1 to {MAX_WORKERS:,}",
            )  # fmt: skip
    if len(values) < 2:
        raise problem_at(("space", WORKERS), json.dumps(dimension.given)[:80],
            "must have at least two numbers of workers, such as [1, 2, 4]",
        )  # fmt: skip
    return sorted(values)


def job_batch(job: Mapping[str, Any]) -> int | None:
    """Return the global batch size of a job spec's document; None of a script."""
    if job.get("task") is None:
        return None
    training = job.get("training")
    given = training.get("global_batch_size") if isinstance(training, Mapping) else None
    default: int = TrainingSpec.model_fields["global_batch_size"].default
    return given if isinstance(given, int) else default


def weak_batch(batch: int | None, workers: int, fewest: int) -> int | None:
    """Return the global batch size with which every worker has as many samples as with the fewest
    workers; None: there is none."""
    if batch is None or batch * workers % fewest:
        return None
    return batch * workers // fewest


def scalings_of(
    job: Mapping[str, Any], values: Mapping[str, Any], fewest: int, scaling: Sequence[str]
) -> list[str]:
    """Return the kinds of scaling that a combination is a point of; none: it is not run."""
    batch = job_batch(job)
    size = values.get(BATCH, batch)
    same = {STRONG: batch, WEAK: weak_batch(batch, values[WORKERS], fewest)}
    return [each for each in scaling if size == same[each]]
