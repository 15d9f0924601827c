"""/auth/oidc: the login by an OpenID provider. Browsers open these as pages."""

import html
import secrets

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from trainhall.api.limits import address_of, limits_of, network_at
from trainhall.api.login.authentication import OIDC_CALLBACK, OIDC_LOGIN, session_cookie
from trainhall.api.login.cookies import own_base, set_session_cookie
from trainhall.api.login.provider import (
    PENDING_SECONDS,
    NotAcceptedError,
    Pending,
    Provider,
    ProviderAwayError,
    own_path,
)
from trainhall.api.problems import RefusalError
from trainhall.api.routes.site.dashboard import STYLED_TEXT_POLICY
from trainhall.cluster.errors import ForbiddenError

router = APIRouter(include_in_schema=False)

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto }}
body {{ padding: 0 1rem }}
p {{ overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
<p>{text}</p>
<p><a href="/login">Back to the login page</a></p>
"""


@router.get(OIDC_LOGIN)
async def begin(request: Request, next: str | None = None) -> Response:  # noqa: A002
    """Send the browser to the provider; `next` is the page to return to."""
    provider = _provider(request)
    try:
        url, pending = await provider.begin(_redirect_uri(request), own_path(next))
    except ProviderAwayError as error:
        return _away(provider, error)
    except NotAcceptedError as error:
        return _page(502, "The login provider is not set up", _sentence(error))
    response = RedirectResponse(url, 302, {"Cache-Control": "no-store"})
    _set_pending(request, response, pending)
    return response


@router.get(OIDC_CALLBACK)
async def finish(
    request: Request,
    code: str | None = None,
    state: str | None = None,
    error: str | None = None,
    error_description: str | None = None,
) -> Response:
    """Log the browser in that comes back from the provider."""
    provider = _provider(request)
    guesses = limits_of(request).provider_logins
    guesses.check(network_at(request))
    pending = Pending.of(request.cookies.get(_pending_name(request), ""))
    if pending is None:
        return _refused(request, 400, "It took longer than 10 minutes, or was begun elsewhere.")
    if not secrets.compare_digest(pending.state.encode(), (state or "").encode()):
        return _refused(request, 400, "It is of another browser, or of an older attempt.")
    if error is not None or code is None:
        why = error_description or error or "it sent no code"
        return _refused(request, 403, f"{provider.name} refused it: {why[:200]}")
    try:
        identity = await provider.finish(pending, code, _redirect_uri(request))
        accounts = request.app.state.provider_accounts
        client = request.headers.get("user-agent", "")
        secret = await accounts.log_in(identity, client, address_of(request))
    except ProviderAwayError as away:
        return _away(provider, away)
    except NotAcceptedError as refusal:
        guesses.fail(network_at(request))
        return _refused(request, 403, f"{provider.name}: {refusal}.")
    except ForbiddenError as refusal:
        return _refused(request, 403, _sentence(refusal))
    response = RedirectResponse(own_path(pending.path), 303, {"Cache-Control": "no-store"})
    _set_pending(request, response, None)
    set_session_cookie(request, response, secret)
    return response


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.provider
    if provider is None:
        raise RefusalError(
            404, "not-found", "no OpenID provider is configured; see docs/accounts.md"
        )
    return provider


def _redirect_uri(request: Request) -> str:
    """Return where the provider sends the browser back to: to the address that it came by."""
    return own_base(request) + OIDC_CALLBACK


def _pending_name(request: Request) -> str:
    return f"{session_cookie(request)}-oidc"


def _set_pending(request: Request, response: Response, pending: Pending | None) -> None:
    name = _pending_name(request)
    response.set_cookie(
        name,
        pending.cookie() if pending is not None else "",
        max_age=PENDING_SECONDS if pending is not None else 0,
        path="/",
        secure=name.startswith("__Host-"),
        httponly=True,
        samesite="lax",
    )


def _away(provider: Provider, error: ProviderAwayError) -> Response:
    text = (
        f"{provider.name} is unreachable ({error}). Try again in a moment. Sessions stay valid, "
        "and so do the other ways to log in."
    )
    response = _page(503, "The login provider cannot be reached", text)
    response.headers["Retry-After"] = "10"
    return response


def _refused(request: Request, status: int, why: str) -> Response:
    response = _page(status, "The login failed", f"{why} Log in again.")
    _set_pending(request, response, None)
    return response


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _page(status: int, title: str, text: str) -> HTMLResponse:
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": STYLED_TEXT_POLICY}
    content = _PAGE.format(title=html.escape(title), text=html.escape(text))
    return HTMLResponse(content, status, headers)
