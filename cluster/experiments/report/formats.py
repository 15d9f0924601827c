"""Names of the formats, and how a browser may show one; free of heavy imports."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """Format of a report."""

    HTML = "html"
    MD = "md"
    JSON = "json"
    CSV = "csv"
    """The runs alone, without an analysis."""


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
"""Header of the HTML: nothing runs or is loaded, whatever a name in the report should contain."""
