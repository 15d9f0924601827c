"""Uploaded code as the API shows it."""

from trainhall.api.schemas.base import Schema


class Code(Schema):
    """The code of jobs, as it was uploaded."""

    sha256: str
    """Identifier for a job spec's `code`."""
    size: int
    """Bytes of the archive."""
