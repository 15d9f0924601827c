"""Elastic jobs: at which size one goes on when ranks fall, nodes go or devices come free."""

from trainhall.training.spec import JobSpec


def sizes_of(spec: JobSpec) -> list[int] | None:
    """`Job.sizes`: the world sizes that an elastic job can have; None of any other."""
    return list(spec.possible_workers) if spec.resources.is_elastic else None
