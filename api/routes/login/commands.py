"""/auth/methods, and logins of commands that a browser approves: /auth/device, /auth/browser."""

import secrets
from typing import Annotated

from fastapi import Path, Request, Response

from trainhall.api.bodies import read_json
from trainhall.api.context import CoordinatorDep
from trainhall.api.limits import address_of, caller_of, limits_of, network_at
from trainhall.api.login.authentication import PrincipalDep
from trainhall.api.login.command_logins import (
    DEVICE_SECONDS,
    CommandLogins,
)
from trainhall.api.login.cookies import own_base
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.problems import RefusalError
from trainhall.api.schemas.logins import (
    BrowserCode,
    BrowserLogin,
    DeviceCode,
    DeviceDecision,
    DeviceLogin,
    DeviceRequest,
    DeviceToken,
    LoginMethods,
    NewBrowserLogin,
    NewDeviceLogin,
)
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.views import NewApiToken
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import NotAllowedError, NotFoundError

router = Operations(prefix="/auth", tags=["accounts"])
UserCode = Annotated[
    str, Path(max_length=32, description="The code that the user typed.", examples=["WDJB-MJHT"])
]

_NO_LOGIN = RefusalError(
    404, "not-found", "there is no login 'WDJB-MJHT' that waits; the code may have ended"
)
_HASTE = RefusalError(429, "too-many-requests", "ask every 5 s", headers={"Retry-After": "5"})
_NEEDS_BROWSER = RefusalError(
    403, "not-allowed", "commands are logged in by a browser's session, not by an API token"
)
_TOO_MANY_TOKENS = RefusalError(409, "conflict", "you have 100 tokens already; remove some first")
_VOID = RefusalError(
    401, "not-authenticated",
    "the code was used before, has expired, or is for another login",
    headers={"WWW-Authenticate": "Bearer"},
)  # fmt: skip


@router.operation(
    "GET", "/methods", summary="List the ways to log in", answer="What the login page offers."
)
async def list_login_methods(request: Request, coordinator: CoordinatorDep) -> LoginMethods:
    """Needs no credential."""
    provider = request.app.state.provider
    return LoginMethods(
        password=await coordinator.accounts.has_passwords(),
        oidc=provider.name if provider is not None else None,
    )


@router.operation(
    "POST",
    "/device",
    _HASTE,
    summary="Begin a login of commands by code",
    answer="The codes.",
    status=201,
    reads=body(NewDeviceLogin, {"login": {"client": "gpu-07"}}, required=True),
)
async def begin_device_login(request: Request, response: Response) -> DeviceLogin:
    """The user types `user_code` at `url`, in a browser on any host. Needs no credential."""
    wanted = await read_json(request, NewDeviceLogin)
    device_code, device = _logins(request).begin(wanted.client, address_of(request))
    response.headers["Cache-Control"] = "no-store"
    return DeviceLogin(
        device_code=device_code,
        user_code=device.user_code,
        url=f"{own_base(request)}/login/device",
        interval=_logins(request).interval,
        expires_in=DEVICE_SECONDS,
    )


@router.operation(
    "POST",
    "/device/token",
    _NO_LOGIN,
    _TOO_MANY_TOKENS,
    _HASTE,
    summary="Ask for the token of a login by code",
    answer="The token, once the login is approved.",
    reads=body(DeviceCode, {"login": {"device_code": "c2VjcmV0"}}, required=True),
)
async def poll_device_login(
    request: Request, coordinator: CoordinatorDep, response: Response
) -> DeviceToken:
    """Ask every `interval` seconds. Needs no credential."""
    guesses = limits_of(request).command_logins
    guesses.check(network_at(request))
    wanted = await read_json(request, DeviceCode)
    try:
        device = _logins(request).poll(wanted.device_code)
    except NotFoundError:
        guesses.fail(network_at(request))
        raise
    response.headers["Cache-Control"] = "no-store"
    token = None
    if device.approved_by is not None:
        token = await _new_token(coordinator, device.approved_by, device.client)
    return DeviceToken(state=device.state, token=token)


@router.operation(
    "GET",
    "/device/{user_code}",
    _NO_LOGIN,
    _HASTE,
    summary="Read a login by code",
    answer="Who asks.",
)
async def read_device_login(
    request: Request, principal: PrincipalDep, user_code: UserCode
) -> DeviceRequest:
    """Shows the user what they are about to approve."""
    guesses = limits_of(request).command_logins
    guesses.check(caller_of(request))
    try:
        device = _logins(request).find(user_code)
    except NotFoundError:
        guesses.fail(caller_of(request))
        raise
    return DeviceRequest(
        user_code=device.user_code,
        client=device.client,
        address=device.address,
        created_at=device.created_at,
    )


@router.operation(
    "PUT",
    "/device/{user_code}",
    _NO_LOGIN,
    _HASTE,
    _NEEDS_BROWSER,
    summary="Approve or refuse a login by code",
    status=204,
    reads=body(DeviceDecision, {"approve": {"approve": True}}, required=True),
)
async def decide_device_login(
    request: Request, principal: PrincipalDep, user_code: UserCode
) -> None:
    """Commands that wait under this code then act as you."""
    _check_browser(principal)
    guesses = limits_of(request).command_logins
    guesses.check(caller_of(request))
    wanted = await read_json(request, DeviceDecision)
    try:
        _logins(request).decide(user_code, principal if wanted.approve else None)
    except NotFoundError:
        guesses.fail(caller_of(request))
        raise


@router.operation(
    "POST",
    "/browser",
    _NEEDS_BROWSER,
    _HASTE,
    summary="Approve a login of commands on this host",
    answer="The code for them.",
    status=201,
    reads=body(NewBrowserLogin, {"login": {"challenge": "A" * 43}}, required=True),
)
async def approve_browser_login(
    request: Request, principal: PrincipalDep, response: Response
) -> BrowserLogin:
    """The page hands the code to the commands that opened it, which then act as you."""
    _check_browser(principal)
    wanted = await read_json(request, NewBrowserLogin)
    response.headers["Cache-Control"] = "no-store"
    return BrowserLogin(code=_logins(request).new_code(principal, wanted.challenge))


@router.operation(
    "POST",
    "/browser/token",
    _VOID,
    _HASTE,
    _TOO_MANY_TOKENS,
    summary="Trade the code of a browser for a token",
    answer="The token, which is shown only once.",
    status=201,
    reads=body(
        BrowserCode,
        {"login": {"code": "c2VjcmV0", "verifier": "A" * 43, "client": "laptop"}},
        required=True,
    ),
)
async def trade_browser_code(
    request: Request, coordinator: CoordinatorDep, response: Response
) -> NewApiToken:
    """Only for those who know the verifier of the challenge. Needs no credential."""
    guesses = limits_of(request).command_logins
    guesses.check(network_at(request))
    wanted = await read_json(request, BrowserCode)
    try:
        principal = _logins(request).trade(wanted.code, wanted.verifier)
    except NotAllowedError:
        guesses.fail(network_at(request))
        raise
    response.headers["Cache-Control"] = "no-store"
    return await _new_token(coordinator, principal, wanted.client)


def _logins(request: Request) -> CommandLogins:
    logins: CommandLogins = request.app.state.command_logins
    return logins


async def _new_token(coordinator: Coordinator, principal: Principal, client: str) -> NewApiToken:
    name = f"login from {client[:90]}, {secrets.token_hex(3)}"
    return await coordinator.accounts.limited_to(principal).create_token(name)


def _check_browser(principal: Principal) -> None:
    # A narrowed token would else make itself one without limits.
    if principal.how == "token":
        raise _NEEDS_BROWSER
