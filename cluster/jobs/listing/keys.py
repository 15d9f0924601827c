"""Names by which jobs are sorted and filtered; the command line completes them."""

from difflib import get_close_matches
from enum import StrEnum

PARAMETERS, METRICS = "parameters.", "metrics."

SORT_KEYS = (
    "name", "state", "user", "project", "task", "strategy", "created_at", "started_at",
    "finished_at", "duration", "gpu_hours", "step", "priority", "world_size",
)  # fmt: skip
TEXT_FIELDS = (
    "name", "id", "state", "user", "project", "task", "strategy", "reason_code", "experiment",
    "tag", "notes", "archived",
)  # fmt: skip
NUMBER_FIELDS = ("step", "priority", "world_size")
TIME_FIELDS = ("created_at", "started_at", "finished_at")
FIELDS = (*TEXT_FIELDS, *NUMBER_FIELDS, "duration", "gpu_hours", *TIME_FIELDS)
AGGREGATES = ("min", "max")
"""Ends of `metrics.NAME.min` and `.max`; without one, the latest value is meant."""
NO = "no"
"""As a field: `no:tag` keeps jobs without a tag."""


class GroupKey(StrEnum):
    """Field by whose values jobs are counted."""

    USER = "user"
    PROJECT = "project"
    STATE = "state"
    EXPERIMENT = "experiment"
    TAG = "tag"


def nearest(given: str, known: list[str]) -> str:
    """Return a suggestion to append to an error; empty if no known name is similar."""
    found = get_close_matches(given[:64].lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
