"""Names of the formats, which the command line imports too."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """Format of a report."""

    HTML = "html"
    MD = "md"
    JSON = "json"
    CSV = "csv"
    """The runs alone, without an analysis."""
