"""Problem details (RFC 9457): the shape of every error."""

from pydantic import BaseModel

from trainhall.documented import Documented


class FieldProblem(Documented, BaseModel):
    """A complaint about one field of the request."""

    field: str
    """Dotted ("training.steps"); empty for the request as a whole."""
    message: str
    """Description of the error, and the allowed values."""
    value: str | None = None
    """Given value, shortened."""
    position: int | None = None
    """Index of the wrong character in a text that could not be parsed, from 0."""


class Problem(Documented, BaseModel):
    """Why a request was refused or failed, by RFC 9457."""

    type: str
    """Names the kind of problem; it does not change with its wording."""
    title: str
    """The kind of problem, in words."""
    status: int
    """The HTTP status."""
    detail: str
    """Description of this occurrence, and the remedy."""
    instance: str | None = None
    """Names this occurrence in the coordinator's log."""
    errors: list[FieldProblem] = []
    """One entry for each field that is wrong."""
