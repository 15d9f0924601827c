"""Views of reports."""

from trainhall.db.views import Page, Time, View


class ReportSummary(View):
    """Report without its text."""

    id: str
    user: str | None
    """First author; null of reports from before there were users."""
    project: str
    title: str
    version: int
    """Rises with every change, from 1."""
    created_at: Time
    updated_at: Time


class Report(ReportSummary):
    """Report: Markdown, in which a fenced block named `chart` is a live chart."""

    text: str


class ReportPage(Page[ReportSummary]):
    """Reports, the newest first."""
