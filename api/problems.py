"""Errors as problem details (RFC 9457): which error becomes which status, and in which words."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trainhall.api.schemas.problems import FieldProblem, Problem
from trainhall.cluster import errors as cluster_errors
from trainhall.cluster.errors import ClusterError
from trainhall.cluster.experiments.spec import ExperimentError
from trainhall.db.sanitize import sanitize_text
from trainhall.monitoring import errors as monitoring_errors
from trainhall.monitoring.errors import IngestError
from trainhall.training.spec import SpecError
from trainhall.training.spec.problems import display_value, error_message

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:problem-type:trainhall:"
_SHOWN = 80
_SECRETS = frozenset({"password", "old_password", "code"})
"""Fields whose values no error shows."""

TITLES = {
    "bad-request": "Malformed request",
    "not-authenticated": "A valid credential is required",
    "not-allowed": "Not allowed",
    "not-found": "Not found",
    "method-not-allowed": "Method not allowed",
    "wrong-state": "Not possible in the current state",
    "conflict": "Conflict",
    "revoked": "Attempt superseded",
    "node-removed": "Node removed",
    "too-large": "Request too large",
    "range-not-satisfiable": "Range not satisfiable",
    "too-many-requests": "Too many requests",
    "storage-full": "Storage full",
    "unsupported-media-type": "Unsupported content type",
    "invalid-request": "Invalid request",
    "invalid-spec": "Invalid job spec",
    "invalid-experiment": "Invalid experiment",
    "damaged": "Checksum mismatch",
    "upgrade-required": "Incompatible protocol versions",
    "internal-error": "Internal error",
    "unavailable": "Temporarily unavailable",
}
_MLFLOW_CODES = {
    "not-authenticated": "UNAUTHENTICATED",
    "not-allowed": "PERMISSION_DENIED",
    "not-found": "RESOURCE_DOES_NOT_EXIST",
    "conflict": "RESOURCE_ALREADY_EXISTS",
    "wrong-state": "INVALID_STATE",
    "too-many-requests": "REQUEST_LIMIT_EXCEEDED",
    "unavailable": "TEMPORARILY_UNAVAILABLE",
    "storage-full": "INVALID_STATE",
}


class RefusalError(Exception):
    """A request is refused; `kind` is a key of TITLES."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        instance: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.instance = instance

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    def content(self) -> dict[str, Any]:
        """Return the problem details, as JSON data."""
        problem = Problem(
            type=_TYPE + self.kind,
            title=self.title,
            status=self.status,
            detail=sanitize_text(self.detail),
            instance=self.instance,
            errors=self.errors,
        )
        content = problem.model_dump(mode="json", exclude_none=True)
        content["errors"] = [
            {k: sanitize_text(v) if isinstance(v, str) else v for k, v in error.items()}
            for error in content["errors"]
        ]
        return content

    def response(self, more: Mapping[str, str] | None = None) -> Response:
        """
        Args:
            more: members of the answer beside those of problem details.
        """
        headers = {"Cache-Control": "no-store", **self.headers}
        content = {**self.content(), **(more or {})}
        return Response(orjson.dumps(content), self.status, headers, MEDIA_TYPE)

    def for_mlflow(self, code: str | None = None) -> Response:
        """Return the response as MLflow's clients read it, too.

        Args:
            code: one of MLflow's; None: the one of this kind.
        """
        if self.status == 422:
            self.status = 400
        code = code or _MLFLOW_CODES.get(self.kind, "INVALID_PARAMETER_VALUE")
        return self.response({"error_code": code, "message": sanitize_text(self.detail)})


def invalid(field: str, value: object, message: str, position: int | None = None) -> RefusalError:
    """Refuse a field of the request that is wrong."""
    problem = FieldProblem(field=field, message=message, value=shown(value), position=position)
    return invalid_fields([problem])


def invalid_fields(found: Sequence[FieldProblem], kind: str = "invalid-request") -> RefusalError:
    """Refuse all fields of the request that are wrong; the detail shows the first of them."""
    return RefusalError(422, kind, _summarize(found), errors=found)


def refusal_of(error: Exception) -> RefusalError | None:
    """Return the refusal that an error means; None: it is no fault of the request."""
    match error:
        case RefusalError():
            return error
        case SpecError(problems=problems):
            found = [
                FieldProblem(field=p.field, message=p.message, value=p.value) for p in problems
            ]
            kind = "invalid-experiment" if isinstance(error, ExperimentError) else "invalid-spec"
            return invalid_fields(found, kind)
        case RequestValidationError():
            return invalid_fields([_field_problem(item) for item in error.errors()])
        case HTTPException(status_code=status, detail=detail):
            return _of_status(status, str(detail), dict(error.headers or {}))
        case ClusterError():
            return _of_cluster(error)
        case IngestError():
            return _of_ingest(error)
    return None


def _of_ingest(error: IngestError) -> RefusalError:
    detail = str(error) or (type(error).__doc__ or "").strip()
    match error:
        case monitoring_errors.UnknownAttemptError() | monitoring_errors.LineNotFoundError():
            return RefusalError(404, "not-found", detail)
        case monitoring_errors.InvalidLogCursorError(field=field):
            return invalid(field, None, detail)
    return RefusalError(422, "damaged", detail)


_OF_CLUSTER: Mapping[type[ClusterError], tuple[int, str]] = {
    cluster_errors.ForbiddenError: (403, "not-allowed"),
    cluster_errors.NotFoundError: (404, "not-found"),
    cluster_errors.NotHeldError: (404, "not-found"),
    cluster_errors.WrongStateError: (409, "wrong-state"),
    cluster_errors.ConflictError: (409, "conflict"),
    cluster_errors.RevokedError: (409, "revoked"),
    cluster_errors.NodeRemovedError: (410, "node-removed"),
    cluster_errors.TooLargeError: (413, "too-large"),
    cluster_errors.DamagedError: (422, "damaged"),
    cluster_errors.ProtocolMismatchError: (426, "upgrade-required"),
    cluster_errors.StorageFullError: (507, "storage-full"),
}


def _of_cluster(error: ClusterError) -> RefusalError:
    match error:
        case cluster_errors.InvalidCursorError():
            return invalid("cursor", None, error.message)
        case cluster_errors.InvalidValueError():
            # Its message begins with the field's name, which `errors` has separately.
            message = error.message.removeprefix(f"{error.field}: ")
            return invalid(error.field, error.value, message, error.position)
        case cluster_errors.NotAllowedError():
            headers = {"WWW-Authenticate": "Bearer"}
            return RefusalError(401, "not-authenticated", error.message, headers=headers)
        case cluster_errors.TooManyError(retry_seconds=seconds):
            headers = {"Retry-After": str(seconds)}
            return RefusalError(429, "too-many-requests", error.message, headers=headers)
    return RefusalError(*_OF_CLUSTER[type(error)], error.message)


def _of_status(status: int, detail: str, headers: dict[str, str]) -> RefusalError:
    kinds = {
        400: "bad-request", 401: "not-authenticated", 403: "not-allowed", 404: "not-found",
        405: "method-not-allowed", 409: "conflict", 413: "too-large",
        415: "unsupported-media-type", 422: "invalid-request", 429: "too-many-requests",
        503: "unavailable",
    }  # fmt: skip
    kind = kinds.get(status, "bad-request" if status < 500 else "internal-error")
    return RefusalError(status, kind, detail or HTTPStatus(status).phrase, headers=headers)


def field_problems(items: Iterable[Mapping[str, Any]]) -> list[FieldProblem]:
    """Convert Pydantic's errors about a body to problems."""
    return [_field_problem({**item, "loc": ("body", *item["loc"])}) for item in items]


def _field_problem(item: Mapping[str, Any]) -> FieldProblem:
    # The first part says where the value stands (query, path, body, header), not what it is called.
    kind, *inner = item["loc"]
    where = [str(part) for part in (inner[:1] if kind == "query" else inner)]
    is_hidden = item["type"] == "missing" or not _SECRETS.isdisjoint(where)
    return FieldProblem(
        field=sanitize_text(".".join(where))[:256],
        message=sanitize_text(error_message(item)),
        value=None if is_hidden else shown(item.get("input")),
    )


def _summarize(found: Sequence[FieldProblem]) -> str:
    first = found[0]
    text = f"{first.field}: {first.message}" if first.field else first.message
    if first.value:
        text = f"{text} (given: {first.value})"
    more = len(found) - 1
    return f"{text} (and {more} more)" if more else text


def shown(value: object) -> str | None:
    """Return a value as errors show it: shortened, printable; None if too large to show."""
    if value is None or isinstance(value, dict | list | bytes):
        return None
    if isinstance(value, int) and not -(10**40) < value < 10**40:
        return "a very large number"
    return sanitize_text(display_value(value), _SHOWN)
