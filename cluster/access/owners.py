"""Sight of the owners of what works on for them, such as alerts, whoever reads the messages.

Their roles are read when something happens: those that they had before do not count.
"""

from collections.abc import Collection, Mapping, Set

from sqlalchemy import ColumnElement, Connection, exists, or_, select

from trainhall.cluster.access.visibility import Column
from trainhall.db.accounts import GroupMember, Member, User

WHOLE_CLUSTER = ""
"""In place of a project: what is about all of them, which admins see."""


def owner_sees(user: Column, project: Column) -> ColumnElement[bool]:
    """Return the condition that a user may read what belongs to a project.

    Args:
        user: name; NULL is from before there were users, and sees everything.
        project: `WHOLE_CLUSTER`: admins only; NULL: about nothing that belongs to one.
    """
    groups = select(GroupMember.group).where(GroupMember.user_id == User.id)
    role = exists().where(
        Member.project == project, or_(Member.user_id == User.id, Member.group.in_(groups))
    )
    sees = or_(User.is_admin, project.is_(None), role)
    owner = exists().where(User.name == user, User.removed_at.is_(None), sees)
    return or_(user.is_(None), owner)


def projects_seen(
    connection: Connection, names: Collection[str | None]
) -> Mapping[str | None, Set[str] | None]:
    """Return the projects that users may read, by their names; None: everything."""
    users = connection.execute(
        select(User.id, User.name, User.is_admin).where(
            User.name.in_([name for name in names if name is not None]), User.removed_at.is_(None)
        )
    ).all()
    seen: dict[str | None, Set[str] | None] = dict.fromkeys(names, frozenset())
    seen[None] = None
    for user in users:
        groups = select(GroupMember.group).where(GroupMember.user_id == user.id)
        roles = select(Member.project).where(
            or_(Member.user_id == user.id, Member.group.in_(groups))
        )
        seen[user.name] = None if user.is_admin else frozenset(connection.scalars(roles))
    return seen
