"""Cookies of the login."""

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
