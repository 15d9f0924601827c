"""Views of accounts, as the REST API returns them."""

from typing import Literal

from trainhall.cluster.access.principal import How
from trainhall.cluster.access.roles import Role
from trainhall.db.views import Page, Time, View

UserKind = Literal["person", "service"]


class OwnProject(View):
    """Project that the user sees."""

    name: str
    role: Role
    """Role there, as far as the credential reaches; an admin is a maintainer of all."""


class Me(View):
    """The user that a request comes from."""

    user: str
    admin: bool
    how: How
    """Credential of the request: an API token, the session of a browser, or none where the
    coordinator asks for none."""
    projects: list[OwnProject]
    """By name."""


class User(View):
    """Person or service account."""

    name: str
    kind: UserKind
    """Service accounts are programs: they have API tokens, and no login."""
    admin: bool
    project: str | None
    """Project that a service account belongs to; null: of a person, or managed by admins."""
    created_at: Time
    removed_at: Time | None
    """Null for those who may log in."""


class UserPage(Page[User]):
    """Users by name."""


class Group(View):
    """Users who have roles together."""

    name: str
    members: int
    created_at: Time


class GroupPage(Page[Group]):
    """Groups by name."""


class GroupMember(View):
    """User in a group."""

    user: str
    by_provider: bool
    """True: the OpenID provider said so at the last login, and may end it."""


class GroupMemberPage(Page[GroupMember]):
    """Users of a group by name."""


class ApiToken(View):
    """API token, without its secret."""

    id: str
    name: str
    created_at: Time
    expires_at: Time | None
    """Null: it does not expire."""
    used_at: Time | None
    """Its last use, to the minute; null before the first."""
    project: str | None
    """The only project that it reaches; null: all of its user's."""
    role: Role | None
    """The most that it allows there; null: as its user."""
    scopes: list[str] | None
    """All that it may do, such as `metrics`; null: whatever its user may."""


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
