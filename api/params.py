"""Parameters that several routes share."""

import difflib
import re
from functools import partial
from typing import Annotated

from fastapi import Header, Path, Query, Request
from pydantic import AfterValidator

from trainhall.api.problems import invalid_fields, shown
from trainhall.api.schemas.problems import FieldProblem
from trainhall.cluster.errors import NotFoundError
from trainhall.db.queries.cursors import MAX_LENGTH
from trainhall.training.spec.base import one_line

MAX_SEQUENCE = 2**63 - 1
_ID = re.compile(r"[0-9A-Za-z_-]{1,32}", re.ASCII)
_SHAPE = {"pattern": "^[0-9A-Za-z_-]{1,32}$"}

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many items per page.")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=MAX_LENGTH,
        description="`next_cursor` of the previous page; none for the first.",
    ),
]
Sequence = Annotated[int, Query(ge=0, le=MAX_SEQUENCE)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=255,
        min_length=1,
        examples=["nightly-17"],
        description="The same key with the same body creates nothing new, however often it is "
        "sent; with another body it is refused.",
    ),
]


def parse_digits(text: str) -> int | None:
    """Parse a number of at most 19 decimal digits; None: it is something else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def checked_id(kind: str, identity: str) -> str:
    """Return an id valid in a query; raise NotFoundError for anything else."""
    if not _ID.fullmatch(identity):
        raise NotFoundError(kind, shown(identity) or "")
    return identity


def checked_reference(kind: str, name: str) -> str:
    """Return a name valid in a query; raise NotFoundError for text that is none's name, such as
    control characters, which not each database takes."""
    if not name.isprintable():
        raise NotFoundError(kind, shown(name) or "")
    return name


def one_line_or_none(value: str | None) -> str | None:
    """Check a text that a list is filtered by, as of `one_line`."""
    return one_line(value) if value is not None else None


JobId = Annotated[
    str,
    Path(description="The job's id.", json_schema_extra=_SHAPE, examples=["3f2a9c51d07b"]),
    AfterValidator(partial(checked_id, "job")),
]
NodeId = Annotated[
    str,
    Path(description="The node's id.", json_schema_extra=_SHAPE, examples=["9b1d44e0c2aa"]),
    AfterValidator(partial(checked_id, "node")),
]
ExperimentId = Annotated[
    str,
    Path(description="The experiment's id.", json_schema_extra=_SHAPE, examples=["7c0d93be12f4"]),
    AfterValidator(partial(checked_id, "experiment")),
]
AlertId = Annotated[
    str,
    Path(description="The alert's id.", json_schema_extra=_SHAPE, examples=["c41d09be72aa"]),
    AfterValidator(partial(checked_id, "alert")),
]
ReportId = Annotated[
    str,
    Path(description="The report's id.", json_schema_extra=_SHAPE, examples=["a83e5c07d1f2"]),
    AfterValidator(partial(checked_id, "report")),
]
CheckpointId = Annotated[
    str,
    Path(description="The checkpoint's id.", json_schema_extra=_SHAPE, examples=["5e60b7d2f913"]),
    AfterValidator(partial(checked_id, "checkpoint")),
]


async def known_query(request: Request) -> None:
    """Refuse query parameters that a route does not know: `?dryrun=true` must not submit.

    Raises:
        RefusalError: 422, naming the nearest one it knows.
    """
    given = request.query_params
    if not given:
        return
    known = _query_names(request)
    wrong = [name for name in given if name not in known]
    if not wrong:
        return
    errors = []
    for name in wrong:
        near = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.5)
        if near:
            message = f"unknown parameter; did you mean {near[0]!r}?"
        elif known:
            message = f"unknown parameter; known here: {', '.join(sorted(known))}"
        else:
            message = "unknown parameter; there are none here"
        errors.append(FieldProblem(field=shown(name) or "", message=message))
    raise invalid_fields(errors)


def _query_names(request: Request) -> set[str]:
    names: set[str] = set()
    pending = [request.scope["route"].dependant]
    while pending:
        dependant = pending.pop()
        names.update(field.alias for field in dependant.query_params)
        pending.extend(dependant.dependencies)
    return names
