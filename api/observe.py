"""Middleware around every request: an id, safe headers, a log line, a count, a reply even to a
failure."""

import secrets
import time

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhall.api.problems import RefusalError
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.db.database import is_full, is_read_only, was_undone

log = structlog.get_logger(__name__)

REQUEST_ID = "x-request-id"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
"""Headers of every answer that has none of its own: data is never taken for a page."""
FORWARDED = "trainhall.forwarded"
"""Key of the scopes of requests that a program beside a job answers, with headers of its own."""
_MAX_ID = 64
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestFigures:
    """Counts and times of requests, by route."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "trainhall_http_requests", "Requests served.", ["method", "route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "trainhall_http_request_seconds", "Time to the end of the response.", ["route"],
            buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip


class Observe:
    """The outermost ASGI middleware.

    A request that fails is answered with 500, or 503 when the database is unavailable or undid the
    transaction, or 507 when its disk is full, and logged under the id in the reply.
    """

    def __init__(self, app: ASGIApp, *, figures: RequestFigures, access_log: bool = False) -> None:
        self.app = app
        self._figures = figures
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request_id = _request_id(scope)
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in _HEADERS.items() if FORWARDED not in scope else ():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, answer)
        except Exception as error:
            refusal = _failure(error, request_id)
            log.error(
                "request_failed", request_id=request_id, method=scope["method"], path=scope["path"],
                exc_info=error if refusal.status == 500 else None, error=repr(error)[:500],
            )  # fmt: skip
            if status:
                raise  # half an answer is out: only the end of the connection shows it
            await refusal.response()(scope, receive, answer)
        finally:
            self._count(scope, status, time.perf_counter() - started, request_id)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = _route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._figures.requests.labels(method, route, str(status)).inc()
        self._figures.seconds.labels(route).observe(seconds)
        if self._access_log:
            log.info(
                "request", method=scope["method"], path=scope["path"], status=status,
                milliseconds=round(1000 * seconds, 1), request_id=request_id,
            )  # fmt: skip


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _route_of(scope: Scope) -> str:
    """Return the pattern of the taken route, with the prefix of its inclusion."""
    pattern = getattr(scope.get("route"), "path", None)
    if pattern is None:
        return "other"
    pattern = scope.get("root_path", "") + pattern
    inside = scope["path"].startswith(API_PREFIX) and not pattern.startswith(API_PREFIX)
    return API_PREFIX + pattern if inside else str(pattern)


def _request_id(scope: Scope) -> str:
    """Return the caller's own id, so that it finds itself in the log, else a fresh one."""
    text = Headers(scope=scope).get(REQUEST_ID, "")
    if 1 <= len(text) <= _MAX_ID and text.isascii() and text.replace("-", "").isalnum():
        return text
    return secrets.token_hex(8)


def _failure(error: Exception, request_id: str) -> RefusalError:
    instance = f"urn:request:{request_id}"
    if isinstance(error, DBAPIError) and was_undone(error):
        return _unavailable(
            "nothing was changed: another request changed it at the same time", instance
        )
    if isinstance(error, DBAPIError) and is_full(error):
        return RefusalError(
            507, "storage-full", "the disk with the database is full; nothing was changed",
            instance=instance,
        )  # fmt: skip
    if isinstance(error, DBAPIError) and is_read_only(error):
        return _unavailable("the database can only be read", instance)
    if isinstance(error, OperationalError | InterfaceError):
        return _unavailable("the database is unavailable", instance)
    return RefusalError(
        500, "internal-error", f"the coordinator failed; see its log under {request_id}",
        instance=instance,
    )  # fmt: skip


def _unavailable(why: str, instance: str) -> RefusalError:
    return RefusalError(
        503, "unavailable", f"{why}; try again in a moment",
        headers={"Retry-After": "1"}, instance=instance,
    )  # fmt: skip
