"""The caller of a request, as routes and services get it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from trainhall.cluster.access.roles import Action, Role, allows, needed_role
from trainhall.cluster.errors import ForbiddenError, NotFoundError

How = Literal["none", "token", "session"]


class Owned(Protocol):
    """A row that belongs to a project, and there to a user."""

    @property
    def id(self) -> str: ...

    @property
    def project(self) -> str: ...

    @property
    def user(self) -> str | None: ...


class Owner(NamedTuple):
    """Owner of a thing."""

    id: str
    """Id of the thing."""
    project: str
    user: str | None


@dataclass(frozen=True)
class Principal:
    """User and credential that a request comes from, and what they may do."""

    user: str
    """Name of the user."""
    is_admin: bool
    """True: every action in every project. An admin's token that was narrowed is none's."""
    how: How
    """The credential; `none` where the coordinator asks for none."""
    user_id: str = ""
    """Empty without a credential."""
    credential_id: str = ""
    """Id of the API token or of the session."""
    credential: str = ""
    """Name of it in the audit log: that of the API token, or the id of the session."""
    address: str = ""
    """Address that the request comes from."""
    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    """By project, as far as the credential reaches."""
    scopes: frozenset[str] = frozenset()
    """All that its token may do, such as `metrics`; empty: whatever the roles allow."""
    is_narrowed: bool = False
    """True: its token has less than its user, and so changes no credential."""

    @property
    def named(self) -> str | None:
        """The user as events name them; None for the coordinator itself, and where everybody is
        the first admin."""
        return self.user if self.user and self.how != "none" else None

    def may(self, action: Action, project: str, owner: str | None = None) -> bool:
        """Return whether an action is allowed in a project, on what belongs to `owner`."""
        own = owner is not None and owner == self.user
        return self.is_admin or allows(self.roles.get(project), action, own=own)

    def check(self, action: Action, row: Owned, kind: str) -> None:
        """Check that an action is allowed on a row.

        Args:
            kind: what the row is, for the message: job, checkpoint, experiment, report.

        Raises:
            NotFoundError: they may not even read it.
            ForbiddenError: they may read it, but not do this.
        """
        if not self.may(Action.READ, row.project):
            raise NotFoundError(kind, row.id, hidden_in=row.project)
        why = self.refusal(action, row, kind)
        if why is not None:
            raise ForbiddenError(why, project=row.project)

    def check_admin(self, purpose: str) -> None:
        """Check that they are an admin.

        Args:
            purpose: for the message, such as "add users".

        Raises:
            ForbiddenError: they are none, or use a narrowed token.
        """
        if not self.is_admin:
            remedy = (
                "your token may do less than you" if self.is_narrowed else "admins can make you one"
            )
            raise ForbiddenError(f"to {purpose} takes an admin; {remedy}")

    def check_manages(self, project: str, purpose: str) -> None:
        """Check that they manage the members and service accounts of a project.

        Raises:
            NotFoundError: they do not see the project.
            ForbiddenError: their role is too low.
        """
        if not self.may(Action.READ, project):
            raise NotFoundError("project", project)
        if not self.may(Action.MANAGE, project):
            raise ForbiddenError(
                f"to {purpose} takes the role {needed_role(Action.MANAGE)} in project {project}; "
                f"you have {self.roles[project]}; {who_gives_roles(project)}",
                project=project,
            )

    def refusal(self, action: Action, row: Owned, kind: str) -> str | None:
        """Return why an action is not allowed on a row that they see; None: it is allowed."""
        if self.may(action, row.project, row.user):
            return None
        of_others = self.may(action, row.project, self.user)
        least = needed_role(action, own=row.user == self.user)
        what = f"{kind}s of others" if of_others else f"{kind} {row.id}"
        return (
            f"to {action.value} {what} in project {row.project} takes the role {least}; you have "
            f"{self.roles[row.project]}; {who_gives_roles(row.project)}"
        )


def who_gives_roles(project: str) -> str:
    """Return who can give a role, as refusals end."""
    return f"a maintainer of {project} or an admin can give it"


SYSTEM = Principal(user="", is_admin=True, how="none")
"""The coordinator itself."""
