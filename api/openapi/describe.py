"""Descriptions of operations in the OpenAPI document: examples, and every error as a problem."""

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel

from trainhall.api.bodies import FORMATS
from trainhall.api.login.authentication import NO_CREDENTIAL
from trainhall.api.params import (
    AlertId,
    CheckpointId,
    ExperimentId,
    JobId,
    Limit,
    NodeId,
    ReportId,
)
from trainhall.api.problems import MEDIA_TYPE, RefusalError, invalid, invalid_fields
from trainhall.api.schemas.problems import FieldProblem

Handler = TypeVar("Handler", bound=Callable[..., Any])
Responses = dict[int | str, dict[str, Any]]
REF = "#/components/schemas/{model}"

UNAUTHENTICATED = RefusalError(401, "not-authenticated", NO_CREDENTIAL)
FORBIDDEN = RefusalError(
    403, "not-allowed", "a page of 'http://example.org' may not use this coordinator"
)
FAILED = RefusalError(
    500, "internal-error", "the coordinator failed; see its log under 1f0c2b7e55aa4d21",
    instance="urn:request:1f0c2b7e55aa4d21",
)  # fmt: skip
UNAVAILABLE = RefusalError(503, "unavailable", "the database is unavailable; try again in a moment")
UNKNOWN_PARAMETER = invalid("limt", None, "unknown parameter; did you mean 'limit'?")
NO_JOB = RefusalError(404, "not-found", "there is no job '3f2a9c51d07b'")
NO_NODE = RefusalError(404, "not-found", "there is no node '9b1d44e0c2aa'")
NO_EXPERIMENT = RefusalError(404, "not-found", "there is no experiment '7c0d93be12f4'")
NO_ALERT = RefusalError(404, "not-found", "there is no alert 'c41d09be72aa'")
NO_REPORT = RefusalError(404, "not-found", "there is no report 'a83e5c07d1f2'")
NO_VIEW = RefusalError(404, "not-found", "there is no view 'failed this week'")
VIEW_EXISTS = RefusalError(
    409,
    "conflict",
    "there is a view 'failed this week' already; use another name, or delete it first",
)
REPORT_CHANGED = RefusalError(
    409,
    "conflict",
    "the report was changed at 2026-01-05T09:30:00.210000Z, after you opened it (you edited "
    "version 1, the newest is 2); read it again and repeat your changes there",
)
NO_CHECKPOINT = RefusalError(404, "not-found", "there is no checkpoint '5e60b7d2f913'")
BAD_LIMIT = invalid("limit", 0, "must be at least 1")
BAD_SPEC = RefusalError(
    422,
    "invalid-spec",
    "training.stepz: unknown key; did you mean 'steps'?",
    errors=[
        FieldProblem(field="training.stepz", message="unknown key; did you mean 'steps'?"),
    ],
)
SPEC_TOO_LARGE = RefusalError(413, "too-large", "the body is longer than 128 KiB")
QUEUE_FULL = RefusalError(
    429, "too-many-requests",
    "maria has 1000 jobs in the queue, and no more may wait; submit more when some have started",
)  # fmt: skip
REPORT_TOO_LARGE = RefusalError(413, "too-large", "the body is longer than 1 MiB")
BODY_TOO_LARGE = RefusalError(413, "too-large", "the body is longer than 64 KiB")
NOT_JSON = RefusalError(
    415,
    "unsupported-media-type",
    "content type 'text/plain' is not accepted; send application/json",
)
NEITHER_JSON_NOR_YAML = RefusalError(
    415,
    "unsupported-media-type",
    "content type 'text/plain' is not accepted; send application/json, application/yaml, "
    "application/x-yaml, text/yaml",
)
NODE_GOES = RefusalError(
    409,
    "conflict",
    "node gpu-07 is being removed, which cannot be undone: add it again with "
    "`trainhall nodes add` once it is removed",
)
NAME_TAKEN = RefusalError(
    409, "conflict", "a node named 'gpu-07' is ready: choose another name, or remove it"
)


IMPLIED: Sequence[tuple[object, RefusalError]] = (
    (Limit, BAD_LIMIT),
    (JobId, NO_JOB),
    (NodeId, NO_NODE),
    (CheckpointId, NO_CHECKPOINT),
    (ExperimentId, NO_EXPERIMENT),
    (AlertId, NO_ALERT),
    (ReportId, NO_REPORT),
)
"""Refusals of every operation that has such a parameter."""


def wrong_state(detail: str) -> RefusalError:
    return RefusalError(409, "wrong-state", detail)


def key_taken(label: str) -> RefusalError:
    detail = f"Idempotency-Key 'nightly-17' was used for another body, of {label}; use a new key"
    return RefusalError(409, "conflict", detail)


def invalid_experiment(field: str, message: str) -> RefusalError:
    return invalid_fields([FieldProblem(field=field, message=message)], "invalid-experiment")


def answers(
    *refusals: RefusalError,
    status: int = 200,
    description: str = "Done.",
    also: Responses | None = None,
) -> Responses:
    """Return the `responses` of an operation: one success, and the refusals."""
    described: Responses = {status: {"description": description}, **(also or {})}
    for refusal in (UNAUTHENTICATED, *refusals, FORBIDDEN, FAILED, UNAVAILABLE):
        described[refusal.status] = problem(refusal)
    described.setdefault(422, problem(UNKNOWN_PARAMETER))
    return dict(sorted(described.items(), key=lambda item: int(item[0])))


@cache
def problem(refusal: RefusalError) -> dict[str, Any]:
    """Return a problem-details response, with this refusal as its example."""
    content = {"schema": {"$ref": REF.format(model="Problem")}, "example": refusal.content()}
    return {"description": refusal.title, "content": {MEDIA_TYPE: content}}


def body(model: type[BaseModel], examples: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Return the `openapi_extra` of an operation that parses its own JSON body."""
    content = {"schema": {"$ref": REF.format(model=model.__name__)}}
    shown = {name: {"value": value} for name, value in examples.items()}
    return {
        "requestBody": {
            "required": required,
            "content": {"application/json": {**content, "examples": shown}},
        }
    }


def document_body(model: str, what: str, as_json: dict[str, Any], as_yaml: str) -> dict[str, Any]:
    """Return the `openapi_extra` of an operation that reads a document in JSON or YAML.

    Args:
        as_json: `example` or `examples` of the media type.
        as_yaml: an example.
    """
    schema = {"schema": {"$ref": REF.format(model=model)}}
    shown = {"json": as_json, "yaml": {"example": as_yaml}}
    return {
        "requestBody": {
            "required": True,
            "description": f"{what}, at most 128 KiB.",
            "content": {media: {**schema, **shown[kind]} for media, kind in FORMATS.items()},
        }
    }


class Operations(APIRouter):
    """Routes that the OpenAPI document describes: what they answer with, and every refusal."""

    def operation(
        self,
        method: str,
        path: str,
        *refusals: RefusalError,
        summary: str,
        answer: str = "Done.",
        status: int = 200,
        reads: dict[str, Any] | None = None,
        also: Responses | None = None,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Add a route under its function's name: `list_jobs` is the operation `listJobs`.

        Args:
            refusals: beside those that its parameters and its body imply.
            answer: describes the response of success.
            reads: `body` of an operation that reads its JSON body by itself.
            options: of FastAPI's routes.
        """

        def add(handler: Handler) -> Handler:
            kinds = [parameter.annotation for parameter in signature(handler).parameters.values()]
            implied = [refusal for kind, refusal in IMPLIED if any(kind is each for each in kinds)]
            if reads is not None:
                implied += [BODY_TOO_LARGE, NOT_JSON]
                options["openapi_extra"] = reads
            first, *rest = handler.__name__.split("_")
            self.add_api_route(
                path,
                handler,
                methods=[method],
                status_code=status,
                summary=summary,
                responses=answers(
                    *implied, *refusals, status=status, description=answer, also=also
                ),
                operation_id=first + "".join(part.capitalize() for part in rest),
                **options,
            )
            return handler

        return add
