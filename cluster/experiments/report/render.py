"""A report in one of its formats."""

from trainhall.cluster.experiments.report.content import Report
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.report.html import to_html
from trainhall.cluster.experiments.report.markdown import to_markdown


def render(report: Report, form: ReportFormat) -> str:
    """Return a report in any format but CSV."""
    match form:
        case ReportFormat.HTML:
            return to_html(report)
        case ReportFormat.MD:
            return to_markdown(report)
    return report.analysis.model_dump_json(indent=2) + "\n"
