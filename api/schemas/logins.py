"""Logins of the command line, and what the login page offers."""

from typing import Annotated, Literal

from pydantic import Field

from trainhall.api.schemas.base import Body, Name
from trainhall.cluster.accounts.views import NewApiToken
from trainhall.db.views import Time, View

Code = Annotated[str, Field(min_length=1, max_length=128)]


class LoginMethods(View):
    """Ways to log in beside a login link."""

    password: bool
    """True if there is a user with a password."""
    oidc: str | None
    """Name of the OpenID provider; null: none is configured."""


class NewDeviceLogin(Body):
    """Login of commands, to be approved in a browser on any host."""

    client: Name
    """Name of the host that asks, for people."""


class DeviceLogin(View):
    """Login of commands that waits for a browser."""

    device_code: str
    """Secret of the commands: `POST /auth/device/token` takes it."""
    user_code: str
    """Code to type in the browser."""
    url: str
    """Page that takes the code."""
    interval: int
    """Seconds between two requests for the token."""
    expires_in: int
    """Seconds until it ends."""


class DeviceCode(Body):
    """Secret of the commands that wait."""

    device_code: Code
    """The `device_code` of `POST /auth/device`."""


class DeviceToken(View):
    """State of a login of commands."""

    state: Literal["pending", "approved", "denied"]
    token: NewApiToken | None
    """API token of whoever approved it, shown only once."""


class DeviceRequest(View):
    """Login of commands, as the browser shows it."""

    user_code: str
    client: str
    """Name of the host, as the commands give it."""
    address: str
    """Address that they asked from."""
    created_at: Time


class DeviceDecision(Body):
    """Answer of the user."""

    approve: Annotated[bool, Field(strict=True)]
    """False: refuse it."""


class NewBrowserLogin(Body):
    """Login of commands on the host of the browser."""

    challenge: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{43}$")]
    """SHA-256 of their verifier, in base64url without padding."""


class BrowserLogin(View):
    """Code for the commands that opened the page."""

    code: str
    """`POST /auth/browser/token` takes it, once, within a minute."""


class BrowserCode(Body):
    """Code that the browser handed to the commands."""

    code: Code
    """The `code` of `POST /auth/browser`."""
    verifier: Annotated[str, Field(min_length=43, max_length=128)]
    """Random text whose hash was the challenge."""
    client: Name
    """Name of the host that asks, for people."""
