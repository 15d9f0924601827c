"""/auth: log in and out, and a user's own API tokens and sessions."""

from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import AfterValidator

from trainhall.api.bodies import read_json
from trainhall.api.context import CoordinatorDep
from trainhall.api.limits import address_of, limits_of, network_at, too_many
from trainhall.api.login.authentication import PrincipalDep
from trainhall.api.login.cookies import set_session_cookie
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import Cursor, Limit, checked_id, one_line_or_none
from trainhall.api.problems import RefusalError, invalid
from trainhall.api.schemas.accounts import Login, LoginCode, NewLink, NewToken
from trainhall.cluster.access.names import MAX_NAME
from trainhall.cluster.accounts.reach import Reach
from trainhall.cluster.accounts.views import (
    ApiTokenPage,
    LoginLink,
    Me,
    NewApiToken,
    SessionPage,
)

router = Operations(prefix="/auth", tags=["accounts"])
TokenId = Annotated[
    str,
    Path(max_length=32, description="The token's id.", examples=["5d0c77e1a94b"]),
    AfterValidator(partial(checked_id, "token")),
]
OfUser = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_NAME,
        description="Tokens of this service account (for admins: of any user), in place of yours.",
    ),
    AfterValidator(one_line_or_none),
]
SessionId = Annotated[
    str,
    Path(max_length=32, description="The session's id.", examples=["b81f0e6d2c53"]),
    AfterValidator(partial(checked_id, "session")),
]

_USED = RefusalError(
    401, "not-authenticated",
    "the login link was used before, or has expired; make another with `trainhall open`",
    headers={"WWW-Authenticate": "Bearer"},
)  # fmt: skip
_GUESSED = too_many(
    "20 requests of 10.0.0.7 failed within 60 s; try again in 12 s", retry_seconds=12
)
_NO_TOKEN = RefusalError(404, "not-found", "there is no token '5d0c77e1a94b'")
_NO_SESSION = RefusalError(404, "not-found", "there is no session 'b81f0e6d2c53'")
_TOKEN_EXISTS = RefusalError(
    409, "conflict", "you have a token 'ci' already; use another name, or remove it first"
)
_NARROWED = RefusalError(
    403, "not-allowed", "a narrowed token may not create tokens; log in, or use a whole token"
)
_NO_USER = RefusalError(404, "not-found", "there is no user 'ci-vision'")
_WRONG = RefusalError(
    401, "not-authenticated", "the name or the password is wrong",
    headers={"WWW-Authenticate": "Bearer"},
)  # fmt: skip
_WAIT = RefusalError(
    429, "too-many-requests", "too many wrong passwords; try again in 8 s",
    headers={"Retry-After": "8"},
)  # fmt: skip
_PAST = invalid("expires_at", "2020-01-01T00:00:00Z", "must be in the future")


@router.operation(
    "POST",
    "/link",
    _USED,
    _GUESSED,
    summary="Log a browser in",
    status=204,
    reads=body(LoginCode, {"code": {"code": "c2VjcmV0LW9mLXRoZS1saW5r"}}, required=True),
)
async def log_in(coordinator: CoordinatorDep, request: Request) -> Response:
    """Trades the code of a login link, once, for the cookie of a session of 30 days."""
    with limits_of(request).links.attempt(network_at(request)):
        wanted = await read_json(request, LoginCode)
        client = request.headers.get("user-agent", "")
        secret = await coordinator.accounts.log_in(wanted.code, client, address_of(request))
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    set_session_cookie(request, response, secret)
    return response


@router.operation(
    "POST",
    "/login",
    _WRONG,
    _WAIT,
    summary="Log a browser in by a password",
    status=204,
    reads=body(
        Login, {"login": {"name": "maria", "password": "correct horse battery"}}, required=True
    ),
)
async def log_in_by_password(coordinator: CoordinatorDep, request: Request) -> Response:
    """Trades a name and a password for the cookie of a session of 30 days. From the fifth wrong
    password on, of a name or from an address, each next attempt waits longer."""
    wanted = await read_json(request, Login)
    secret = await coordinator.accounts.log_in_by_password(
        wanted.name, wanted.password, address_of(request), request.headers.get("user-agent", "")
    )
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    set_session_cookie(request, response, secret)
    return response


@router.operation(
    "POST",
    "/codes",
    summary="Make a login link",
    answer="The code, for one browser.",
    status=201,
    reads=body(NewLink, {"a minute": {"seconds": 60}}, required=False),
)
async def create_login_link(
    services: ServicesDep, request: Request, response: Response
) -> LoginLink:
    """Logs in as the same user: open `/login#code=CODE` of the coordinator."""
    wanted = await read_json(request, NewLink)
    response.headers["Cache-Control"] = "no-store"
    return await services.accounts.new_code(wanted.seconds)


@router.operation("POST", "/logout", summary="Log out", status=204)
async def log_out(services: ServicesDep, principal: PrincipalDep, request: Request) -> Response:
    """Ends the session of this browser. An API token stays valid."""
    if principal.how == "session":
        await services.accounts.end_session(principal.credential_id)
    response = Response(status_code=204)
    set_session_cookie(request, response, None)
    return response


@router.operation("GET", "/me", summary="Read who you are", answer="The user of this request.")
async def read_me(services: ServicesDep, principal: PrincipalDep) -> Me:
    """The user that the credential of the request belongs to, and the projects it reaches."""
    return Me(
        user=principal.user,
        admin=principal.is_admin,
        how=principal.how,
        projects=await services.projects.own(),
    )


@router.operation("GET", "/tokens", _NO_USER, summary="List API tokens", answer="A page of tokens.")
async def list_tokens(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    user: OfUser = None,
) -> ApiTokenPage:
    """The oldest first, without their secrets."""
    return await services.accounts.tokens(limit=limit, cursor=cursor, user=user)


@router.operation(
    "POST",
    "/tokens",
    _NARROWED,
    _NO_USER,
    _TOKEN_EXISTS,
    _PAST,
    summary="Create an API token",
    answer="The token, which is shown only once.",
    status=201,
    reads=body(
        NewToken,
        {
            "token": {"name": "ci"},
            "narrowed": {"name": "viewer of vision", "project": "vision", "role": "viewer"},
            "of a service account": {"name": "nightly", "user": "ci-vision"},
        },
        required=True,
    ),
)
async def create_token(services: ServicesDep, request: Request, response: Response) -> NewApiToken:
    """A program that sends it as `Authorization: Bearer TOKEN` may do whatever its user may, as far
    as the token is not narrowed. Tokens of a service account are made by the maintainers of its
    project, and by admins."""
    wanted = await read_json(request, NewToken)
    now, end = services.unlimited.clock.now(), wanted.expires_at
    if wanted.expires_in is not None:
        if end is not None:
            raise invalid("expires_in", wanted.expires_in, "excludes expires_at; give one of them")
        end = now + timedelta(seconds=wanted.expires_in)
    if end is not None and end <= now:
        raise invalid("expires_at", end.isoformat(), "must be in the future")
    response.headers["Cache-Control"] = "no-store"
    return await services.accounts.create_token(
        wanted.name,
        end,
        Reach(wanted.project, wanted.role, [*wanted.scopes] if wanted.scopes else None),
        wanted.user,
    )


@router.operation(
    "DELETE", "/tokens/{token_id}", _NO_TOKEN, summary="Revoke an API token", status=204
)
async def delete_token(services: ServicesDep, token_id: TokenId) -> None:
    """Refuses requests with it from now on."""
    await services.accounts.revoke_token(token_id)


@router.operation("GET", "/sessions", summary="List your sessions", answer="A page of sessions.")
async def list_sessions(
    services: ServicesDep, limit: Limit = 50, cursor: Cursor = None
) -> SessionPage:
    """Browsers in which you are logged in, the oldest first."""
    return await services.accounts.sessions(limit=limit, cursor=cursor)


@router.operation(
    "DELETE", "/sessions/{session_id}", _NO_SESSION, summary="End a session", status=204
)
async def end_session(services: ServicesDep, session_id: SessionId) -> None:
    """Logs that browser out."""
    await services.accounts.end_session(session_id)
