"""A job's spec with other resources or another strategy than it was submitted with."""

from typing import Any

from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.parse import refuse_idle, validate_spec
from trainhall.training.spec.resources import changed as changed_resources
from trainhall.training.spec.strategies import options_of

_DEGREES = ("data", "pipeline", "shard", "tensor", "servers", "microbatches")


def changed_spec(
    spec: dict[str, Any],
    resources: dict[str, Any] | None,
    parallelism: dict[str, Any] | None,
) -> JobSpec:
    """Change a spec; raise SpecError if the result is not valid."""
    changed = {**spec}
    asked = parallelism or {}
    old = dict(spec.get("parallelism", {}))
    if resources is not None:
        changed["resources"] = changed_resources(spec["resources"], resources)
    strategy = old.get("strategy", "ddp")
    moves = asked.get("strategy", strategy) != strategy
    if resources is not None or moves:
        # The old degrees followed from the number of workers and the strategy.
        old |= dict.fromkeys(_DEGREES)
    if moves:
        # Nor does another strategy combine gradients by the old one's algorithm or compression, or
        # have all of its options.
        old.pop("gradient_sync", None)
        old = options_of(asked["strategy"], old)
    changed["parallelism"] = {**old, **asked}
    wanted = validate_spec(changed)
    refuse_idle(wanted, {("parallelism", name) for name in asked})
    return wanted


def spec_columns(spec: JobSpec) -> dict[str, Any]:
    """Return the spec as a job's row has it, and the copies of its parts."""
    return {
        "user": spec.user,
        "project": spec.project or DEFAULT_PROJECT,
        "task": spec.task.name if spec.task is not None else None,
        "strategy": spec.parallelism.strategy if spec.task is not None else None,
        "spec": spec.model_dump(mode="json", exclude={"provenance"}),
    }


def job_columns(spec: JobSpec) -> dict[str, Any]:
    """Return the columns that follow from a spec, for the row of a job without ranks."""
    return {
        **spec_columns(spec),
        "world_size": spec.resources.workers,
        "sizes": sizes_of(spec),
        **({} if spec.is_auto else {"plan": None, "measured_on": None}),
    }


def resized_spec(spec: dict[str, Any], resources: dict[str, Any]) -> JobSpec:
    """Return the spec with another number of workers. The degrees that it gives stay if they go
    with that number; otherwise they follow from it.

    Raises:
        SpecError: the job cannot have that number.
    """
    try:
        return validate_spec({**spec, "resources": changed_resources(spec["resources"], resources)})
    except SpecError:
        return changed_spec(spec, resources, None)


def sizes_of(spec: JobSpec) -> list[int] | None:
    """Return `Job.sizes`: the sizes that an elastic job can have; None for others."""
    return list(spec.possible_workers) if spec.resources.is_elastic else None
