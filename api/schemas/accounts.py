"""Requests about accounts."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool

from trainhall.api.schemas.base import Body, Name
from trainhall.api.schemas.times import Time
from trainhall.cluster.access.limits import ProjectLimits
from trainhall.cluster.access.names import MAX_NAME
from trainhall.cluster.access.roles import Role
from trainhall.cluster.accounts.lookup import MAX_CODE
from trainhall.cluster.accounts.passwords import MAX_PASSWORD, MIN_PASSWORD
from trainhall.cluster.accounts.secrets import MAX_TOKEN_SECONDS
from trainhall.cluster.accounts.service import CODE_SECONDS
from trainhall.cluster.secrets.service import MAX_VALUE_BYTES
from trainhall.training.spec.base import one_line

AccountName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
"""Name of a new user, group or project (`cluster.access.names`)."""
KnownName = Annotated[AccountName, AfterValidator(one_line)]
"""Name of one that there is."""
Password = Annotated[str, Field(min_length=MIN_PASSWORD, max_length=MAX_PASSWORD)]


class Login(Body):
    """Name and password of a person."""

    name: KnownName
    password: Annotated[str, Field(min_length=1, max_length=MAX_PASSWORD)]


class LoginCode(Body):
    """Code of a login link."""

    code: Annotated[str, Field(min_length=1, max_length=MAX_CODE)]
    """The text after `#code=`."""


class NewLink(Body):
    """Login link to make."""

    seconds: Annotated[float, Field(strict=True, gt=0, le=600)] = CODE_SECONDS
    """Time for which it works."""


class NewToken(Body):
    """API token to create."""

    name: Name
    """For people; unique among the user's tokens."""
    expires_at: Time | None = None
    """When it ends; left out or null: in 90 days, or `expires_in`."""
    expires_in: Annotated[float, Field(strict=True, gt=0, le=MAX_TOKEN_SECONDS)] | None = None
    """In how many seconds it ends, by the coordinator's clock: callers with a wrong one had another
    end in mind."""
    project: KnownName | None = None
    """The only project that it reaches; left out or null: all of its user's."""
    role: Role | None = None
    """The most that it allows there; left out or null: as its user."""
    scopes: Annotated[list[Literal["metrics"]], Field(min_length=1, max_length=1)] | None = None
    """All that it may do: `metrics` reads `/metrics` and nothing else."""
    user: KnownName | None = None
    """The service account that it is for; left out or null: you."""


class NewUser(Body):
    """User to add."""

    name: AccountName
    """Unique, whatever the case of its letters; also among removed users."""
    kind: Literal["person", "service"] = "person"
    admin: StrictBool = False
    """May do everything in every project."""
    password: Password | None = None
    """Left out or null: no login by password."""
    project: KnownName | None = None
    """Project that a service account belongs to; its maintainers manage it."""


class UserChange(Body):
    """Changes to a user; what is left out or null stays."""

    admin: StrictBool | None = None
    password: Password | None = None
    """Ends the user's other sessions."""
    old_password: Annotated[str, Field(max_length=MAX_PASSWORD)] | None = None
    """Needed to change your own."""
    removed: StrictBool | None = None
    """False restores a removed user, without roles and credentials."""


class NewGroup(Body):
    """Group to add."""

    name: AccountName
    """Unique, whatever the case of its letters."""


class NewProject(Body):
    """Project to add."""

    name: AccountName
    """Unique, whatever the case of its letters."""
    limits: ProjectLimits = ProjectLimits()


class ProjectChange(Body):
    """Changes to a project."""

    limits: ProjectLimits
    """Limits to set; those that are left out stay, and null takes one away."""


class NewSecret(Body):
    """Value of a secret."""

    value: Annotated[str, Field(min_length=1, max_length=MAX_VALUE_BYTES)]
    """Text of at most 32 KiB in UTF-8, without NUL bytes."""


class NewRole(Body):
    """Role of a member."""

    role: Role
