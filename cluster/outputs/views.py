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


class OutputFolder(View):
    """Folder with files that a job wrote."""

    path: str
    """Relative to the job's folder, with a slash at its end."""
    files: int
    """Number of files below it, those of folders in it included."""
    size: int
    """Bytes of these files."""


class OutputTotals(View):
    """Numbers of all pages together."""

    files: int
    size: int
    """Bytes."""
    ranks: list[int]
    """Lowest ranks of all hosts with files of the job, in ascending order."""


class OutputPage(Page[Output]):
    """Files of a job, ordered by path."""

    folders: list[OutputFolder]
    """Folders in the folder, ordered by path and before its files; empty for a list of the files of
    all folders."""
    totals: OutputTotals | None
    """Numbers of all pages together, on the first page only."""
