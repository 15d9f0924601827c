"""Authentication of requests, by an API token or by the session of a browser.

Without a valid credential a request is refused with 401, unless its path is open (`OPEN`), is an
agent's, which has a credential of its own, or is a page of the dashboard, which shows nothing
before it is logged in.

A cookie counts for every port of its host, so its name has the id of the coordinator: two
coordinators of one host don't log each other out.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends
from sqlalchemy.exc import DBAPIError
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from trainhall.api.guard import HEALTH
from trainhall.api.limits import address_of
from trainhall.api.login.refusals import note_refusal
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.service import METRICS_SCOPE, AccountService
from trainhall.cluster.api_paths import AGENT_PREFIX, API_PREFIX

LOG_IN, LOG_IN_BY_PASSWORD = f"{API_PREFIX}/auth/link", f"{API_PREFIX}/auth/login"
METHODS = f"{API_PREFIX}/auth/methods"
OIDC_LOGIN, OIDC_CALLBACK = f"{API_PREFIX}/auth/oidc/login", f"{API_PREFIX}/auth/oidc/callback"
COMMAND_LOGINS = (
    f"{API_PREFIX}/auth/device", f"{API_PREFIX}/auth/device/token",
    f"{API_PREFIX}/auth/browser/token",
)  # fmt: skip
OPEN = frozenset(
    {
        HEALTH, "/readyz", LOG_IN, LOG_IN_BY_PASSWORD, METHODS, OIDC_LOGIN, OIDC_CALLBACK,
        *COMMAND_LOGINS,
    }
)  # fmt: skip
"""Paths that need no credential."""
PATHS_OF_SCOPES = {METRICS_SCOPE: "/metrics"}
"""All that a token with a scope reaches."""
SERVER_PREFIXES = ("/api/", "/docs", HEALTH, "/readyz", "/metrics", "/openapi.json")
"""Beginnings of the paths that are no pages of the dashboard."""
MLFLOW_PREFIXES = ("/api/2.0/mlflow", "/api/3.0/mlflow")
"""Beginnings of the paths that MLflow's clients use."""
RECHECK_SECONDS = 2.0
"""Interval between checks of the credential of an open stream."""
_REMEDY = (
    "`trainhall open` on the coordinator's host makes a link that logs a browser in, `trainhall "
    "login` does so for commands, and programs send an API token as `Authorization: Bearer TOKEN`"
)
NO_CREDENTIAL = f"this request has no credential: {_REMEDY}"


class Authentication:
    """ASGI middleware that hands a `Principal` to the routes, or refuses with 401.

    Args:
        asks: without it, a request without a credential is the admin's.
        public_url: where a proxy with TLS serves the coordinator, if one does.
    """

    def __init__(self, app: ASGIApp, *, asks: bool, public_url: str | None = None) -> None:
        self.app = app
        self._asks = asks
        public = urlsplit(public_url or "")
        self._tls_host = public.netloc.lower() if public.scheme == "https" else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = await self._refusal(scope)
            if refusal is not None:
                is_mlflow = scope["path"].startswith(MLFLOW_PREFIXES)
                answer = refusal.for_mlflow() if is_mlflow else refusal.response()
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> RefusalError | None:
        path = scope["path"]
        if path == HEALTH or path.startswith(f"{AGENT_PREFIX}/"):
            return None
        headers = Headers(scope=scope)
        state = scope["app"].state
        scope["trainhall.cookie"] = cookie = self._cookie(scope, headers, state.coordinator_id)
        find = _lookup(headers, cookie, state.coordinator.accounts)
        principal = await find() if find is not None else None
        if principal is not None:
            scope["trainhall.lookup"] = find
        if principal is None and not self._asks:
            principal = state.admin
        if principal is not None:
            principal = replace(principal, address=address_of(HTTPConnection(scope)))
        scope["trainhall.principal"] = principal
        if principal is not None and not _is_beyond(principal, path):
            return None
        if _is_open(path, scope, scope["app"].router.routes):
            scope["trainhall.principal"] = None  # a narrowed credential is none here
            return None
        if principal is not None:
            return _out_of_scope(principal)
        refusal = _refused(scope, find is not None)
        if find is not None:
            note_refusal(HTTPConnection(scope), refusal, refusal)
        return refusal

    def _cookie(self, scope: Scope, headers: Headers, coordinator_id: str) -> str:
        """Return the name of the session's cookie. Under TLS a browser takes it over TLS alone."""
        name = f"trainhall-{coordinator_id[:16]}"
        by_proxy = self._tls_host is not None and headers.get("host", "").lower() == self._tls_host
        return f"__Host-{name}" if scope["scheme"] in ("https", "wss") or by_proxy else name


Lookup = Callable[[], Coroutine[Any, Any, Principal | None]]
"""Finds the principal of a credential, as long as that is valid."""


def _lookup(headers: Headers, cookie: str, accounts: AccountService) -> Lookup | None:
    """Return how the credential of a request is looked up; None: it has none."""
    values = headers.getlist("authorization")
    tokens = [value[6:].strip() for value in values if value[:7].lower() in ("bearer", "bearer ")]
    if tokens:
        return partial(accounts.of_token, tokens[0] if len(values) == 1 else "")
    if secret := _cookie_value(headers, cookie):
        # Another header may be for a proxy with a password of its own.
        return partial(accounts.of_session, secret)
    return partial(accounts.of_token, "") if values else None


def _cookie_value(headers: Headers, name: str) -> str:
    for text in headers.getlist("cookie"):
        for pair in text.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
    return ""


def _is_open(path: str, scope: Scope, routes: Sequence[BaseRoute]) -> bool:
    """Return whether a path needs no credential.

    That of a route needs one unless it is listed, whatever the path looks like.
    """
    if path in OPEN:
        return True
    if path.startswith(SERVER_PREFIXES):
        return False
    return all(route.matches(scope)[0] is Match.NONE for route in routes)


def _is_beyond(principal: Principal, path: str) -> bool:
    """Return whether a path is beyond all that the credential is for."""
    scopes = principal.scopes
    return bool(scopes) and all(path != PATHS_OF_SCOPES.get(scope) for scope in scopes)


def _out_of_scope(principal: Principal) -> RefusalError:
    paths = ", ".join(PATHS_OF_SCOPES.get(scope, scope) for scope in sorted(principal.scopes))
    return RefusalError(
        403, "not-allowed", f"this token is for {paths} alone", headers={"Connection": "close"}
    )


def _refused(scope: Scope, given: bool) -> RefusalError:
    detail = NO_CREDENTIAL
    if given:
        detail = f"the credential is unknown, was revoked, or has expired: {_REMEDY}"
    headers = {"WWW-Authenticate": "Bearer"}
    if scope.get("method") not in ("GET", "HEAD", None):
        # Of a refused caller of HTTP/1.1 a body may be under way that is never read.
        headers["Connection"] = "close"
    return RefusalError(401, "not-authenticated", detail, headers=headers)


def principal_or_none(connection: HTTPConnection) -> Principal | None:
    """Return who a request to an open path comes from, if that is known."""
    principal: Principal | None = connection.scope.get("trainhall.principal")
    return principal


async def get_principal(connection: HTTPConnection) -> Principal:
    """Return who a request comes from: the first admin where no credential is asked for."""
    principal = principal_or_none(connection)
    assert principal is not None, "only open paths are reached without a credential"
    return principal


PrincipalDep = Annotated[Principal, Depends(get_principal)]


async def until_revoked(connection: HTTPConnection) -> str:
    """Wait until the credential of a long connection is no longer valid, or reaches elsewhere.

    Returns:
        What happened, for the user.
    """
    return await until_changed(lookup_of(connection), principal_or_none(connection))


def lookup_of(connection: HTTPConnection) -> Lookup | None:
    """Return how the credential of a request is looked up again; None: it needed none."""
    find: Lookup | None = connection.scope.get("trainhall.lookup")
    return find


async def until_changed(find: Lookup | None, before: Principal | None) -> str:
    """Wait until a credential is no longer valid, or reaches elsewhere.

    Returns:
        What happened, for the user.
    """
    # Viewers that come at once, as after a restart, do not all check at once.
    await asyncio.sleep(RECHECK_SECONDS * random.random())
    while True:
        await asyncio.sleep(RECHECK_SECONDS)
        if find is None or before is None:
            continue  # none was needed
        # A database that does not answer ends no connection.
        with suppress(DBAPIError):
            now = await find()
            if now is None:
                return "logged out: the credential is no longer valid"
            if (now.is_admin, dict(now.roles)) != (before.is_admin, dict(before.roles)):
                return "your roles have changed; connect again"


def session_cookie(connection: HTTPConnection) -> str:
    """Return the name of the cookie of a browser's session."""
    return str(connection.scope["trainhall.cookie"])
