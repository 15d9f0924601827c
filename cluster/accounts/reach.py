"""Reach of a credential: the roles of its user, narrowed by an API token."""

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.roles import Role
from trainhall.db.accounts import GroupMember, Member, Project

NOWHERE: Mapping[str, Role] = MappingProxyType({})


class Reach:
    """Limits of a narrowed API token.

    Args:
        project: the only project; None: all of the user's.
        role: the most in each; None: as the user's.
        scopes: all that it may do, such as `metrics`; None: whatever the user may.
    """

    def __init__(self, project: str | None, role: str | None, scopes: list[str] | None) -> None:
        self.project = project
        self.role = Role(role) if role is not None else None
        self.scopes = frozenset(scopes or ())

    @property
    def is_whole(self) -> bool:
        """True: it was not narrowed."""
        return self.project is None and self.role is None and not self.scopes

    @property
    def changes(self) -> Mapping[str, tuple[None, object]]:
        """Its limits, as the audit log of a new token has them."""
        limits = (
            ("project", self.project), ("role", self.role), ("scopes", sorted(self.scopes) or None)
        )  # fmt: skip
        return {name: (None, value) for name, value in limits if value is not None}

    def narrowed(self, roles: Mapping[str, Role]) -> Mapping[str, Role]:
        """Return roles by project, as far as it reaches."""
        if self.scopes:
            return NOWHERE
        return MappingProxyType(
            {
                project: min(role, self.role or role, key=lambda each: each.rank)
                for project, role in roles.items()
                if self.project in (None, project)
            }
        )


async def read_roles(
    session: AsyncSession, user_id: str, is_admin: bool, reach: Reach
) -> Mapping[str, Role]:
    """Return the roles of a credential by project. An admin has the highest everywhere."""
    if is_admin and reach.is_whole:
        return NOWHERE  # the flag says it all
    roles: dict[str, Role] = {}
    if is_admin:
        names = await session.scalars(select(Project.name))
        roles = dict.fromkeys(names, Role.MAINTAINER)
    else:
        groups = select(GroupMember.group).where(GroupMember.user_id == user_id)
        rows = await session.execute(
            select(Member.project, Member.role).where(
                or_(Member.user_id == user_id, Member.group.in_(groups))
            )
        )
        for project, name in rows:
            role = Role(name)
            roles[project] = max(role, roles.get(project, role), key=lambda each: each.rank)
    return reach.narrowed(roles)
