"""The fencing token of an attempt: who holds an older one may change nothing any more."""

from typing import NamedTuple


class FencingToken(NamedTuple):
    job_id: str
    attempt: int
    generation: int
    """Rises with every regrouping of the attempt's ranks."""
