"""Requests about reports."""

from typing import Annotated

from pydantic import AfterValidator, Field

from trainhall.api.schemas.base import Body, Name
from trainhall.cluster.reports.service import MAX_TEXT
from trainhall.training.spec.base import check_markdown

Markdown = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(check_markdown)]


class NewReport(Body):
    """Report to create."""

    title: Name
    text: Markdown = ""
    """Markdown; a fenced block named `chart` is a live chart."""
    project: Name | None = None
    """Default: the only project that you may write to; an admin's is `default`."""


class ReportChange(Body):
    """Changes to a report; what is left out or null stays."""

    version: Annotated[int, Field(strict=True, ge=1)]
    """Version of the report that was edited; a newer one is not overwritten."""
    title: Name | None = None
    text: Markdown | None = None
    project: Name | None = None
    """Project to move it to."""
