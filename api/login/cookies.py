"""Cookies of the login, and the address that a browser came by."""

from urllib.parse import urlsplit

from fastapi import Request, Response

from trainhall.api.login.authentication import session_cookie
from trainhall.cluster.accounts.sessions import SESSION_LIFE


def set_session_cookie(request: Request, response: Response, secret: str | None) -> None:
    """Hand the browser its session; None: take it back."""
    name = session_cookie(request)
    response.set_cookie(
        name,
        secret or "",
        max_age=int(SESSION_LIFE.total_seconds()) if secret else 0,
        path="/",
        secure=name.startswith("__Host-"),
        httponly=True,
        samesite="strict",
    )


def own_base(request: Request) -> str:
    """Return the URL of this coordinator as the caller knows it, without a slash at its end."""
    public: str | None = request.app.state.settings.public_url
    host = request.headers.get("host", "").lower()
    if public is not None and urlsplit(public).netloc.lower() == host:
        return public.rstrip("/")  # a proxy may end TLS
    return str(request.base_url).rstrip("/")
