"""The fencing token of an attempt: who holds an older one may change nothing any more."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class FencingToken:
    job_id: str
    attempt: int
    generation: int
    """Rises with every regrouping of the attempt's ranks."""
