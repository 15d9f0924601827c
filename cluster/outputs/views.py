"""Views of the files that jobs wrote, as the REST API returns them."""

from trainhall.db.views import Page, Time, View


class Output(View):
    """File that a job wrote."""

    path: str
    """Relative to the job's folder. `\\xNN` stands for a byte that a line of text cannot hold, such
    as a line break, and `\\\\` for a backslash."""
    size: int
    """Bytes."""
    sha256: str
    modified_at: Time
    """Time of the file on its host."""
    stored_at: Time
    attempt: int
    """Attempt that wrote it."""
    rank: int
    """Lowest rank of the host that wrote it."""


class OutputPage(Page[Output]):
    """Files of a job, ordered by path."""
