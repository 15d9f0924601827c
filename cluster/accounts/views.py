"""Views of accounts, as the REST API returns them."""

from trainhall.cluster.access.principal import How
from trainhall.db.views import Page, Time, View


class Me(View):
    """The user that a request comes from."""

    user: str
    admin: bool
    how: How
    """Credential of the request: an API token, the session of a browser, or none where the
    coordinator asks for none."""


class ApiToken(View):
    """API token of the user, without its secret."""

    id: str
    name: str
    created_at: Time
    expires_at: Time | None
    """Null: it does not expire."""
    used_at: Time | None
    """Its last use, to the minute; null before the first."""


class NewApiToken(ApiToken):
    """API token that was just created."""

    token: str
    """The token, shown only once."""


class ApiTokenPage(Page[ApiToken]):
    """API tokens, the oldest first."""


class Session(View):
    """Browser in which the user is logged in."""

    id: str
    client: str
    """The browser's description of itself."""
    created_at: Time
    used_at: Time
    """Its last use, to the minute."""
    expires_at: Time
    current: bool
    """True for the session of this request."""


class SessionPage(Page[Session]):
    """Sessions, the oldest first."""


class LoginLink(View):
    """Code that logs one browser in, once."""

    code: str
    """For `/login#code=…`."""
    expires_at: Time
