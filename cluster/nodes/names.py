"""Names and labels that a node may have."""

import re
from collections.abc import Mapping

from trainhall.cluster.errors import InvalidValueError

MAX_NAME = 128
MAX_LABELS = 64
MAX_KEY = 64
"""Characters of a label's key, as a job's selector has them."""
MAX_LABEL = 256
"""Characters of a label's value."""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Pattern of a node's name, and of a label's key."""


def check_name(field: str, name: str, longest: int = MAX_NAME) -> None:
    """
    Raises:
        InvalidValueError: it does not have the pattern, or is longer.
    """
    if len(name) > longest or not NAME.fullmatch(name):
        raise InvalidValueError(
            field,
            name,
            f"{name[:80]!r} is not a valid name: use 1 to {longest} letters, digits, dots, dashes "
            "and underscores, with a letter or digit at both ends",
        )


def check_labels(labels: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidValueError: there are too many, or one has a wrong key or value.
    """
    if len(labels) > MAX_LABELS:
        raise InvalidValueError("labels", len(labels), f"at most {MAX_LABELS} labels")
    for key, value in labels.items():
        check_name(f"labels.{key[:80]}", key, MAX_KEY)
        if len(value) > MAX_LABEL or not value.isprintable():
            raise InvalidValueError(
                f"labels.{key}", value[:80], f"at most {MAX_LABEL} characters without line breaks"
            )
