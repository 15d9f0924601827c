"""The login by an OpenID provider, as its routes see it; imports nothing of OpenID.

What a browser has under way lies in a cookie of its own, not here: nobody can fill the
coordinator's memory with logins. The cookie is no credential. It is Lax, since the provider's page
sends the browser back, and ends after 10 minutes.
"""

import base64
import binascii
import json
import time
from dataclasses import asdict, dataclass
from typing import Protocol

from trainhall.cluster.accounts.provider import Identity

PENDING_SECONDS = 600
SET_BACK_SECONDS = 120.0
"""The clock may be set back by so much during a login."""
HOME = "/jobs"
MAX_PATH = 1024


class ProviderAwayError(Exception):
    """The provider does not answer, or not as one does."""


class NotAcceptedError(Exception):
    """The provider refused the login, or sent what is not to be trusted; the message says why."""


@dataclass(frozen=True)
class Pending:
    """A login that is under way."""

    state: str
    nonce: str
    verifier: str
    path: str
    """Page to go to afterwards."""
    since: float
    """Seconds since 1970."""

    def cookie(self) -> str:
        """Return it as the value of a cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def of(cls, cookie: str) -> "Pending | None":
        """Read it from a cookie; None: it is none, or too old."""
        try:
            values = json.loads(base64.urlsafe_b64decode(cookie.encode()))
            found = cls(
                **{name: str(values[name]) for name in ("state", "nonce", "verifier", "path")},
                since=float(values["since"]),
            )
        except (binascii.Error, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        is_whole = all((found.state, found.nonce, found.verifier))
        age = time.time() - found.since
        return found if is_whole and -SET_BACK_SECONDS <= age <= PENDING_SECONDS else None


class Provider(Protocol):
    """An OpenID provider."""

    @property
    def name(self) -> str:
        """Name on the login page."""

    async def begin(self, redirect_uri: str, path: str) -> tuple[str, Pending]:
        """Return the page of the provider to send a browser to.

        Raises:
            ProviderAwayError: it does not answer.
        """

    async def finish(self, pending: Pending, code: str, redirect_uri: str) -> Identity:
        """Trade the code that a browser came back with for who it is.

        Raises:
            ProviderAwayError: it does not answer.
            NotAcceptedError: the code was used before, or the ID token is not as it must be.
        """


def own_path(path: str | None) -> str:
    """Return a path of this coordinator's pages: as given, if it is one."""
    if not path or len(path) > MAX_PATH or not path.isascii() or not path.isprintable():
        return HOME
    if path[0] != "/" or path[1:2] in ("/", "\\") or "\\" in path:
        return HOME
    return path
