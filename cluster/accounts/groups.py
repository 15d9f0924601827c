"""Groups of users, which have roles in projects together."""

import asyncio

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.names import check_unused, checked_name, composed
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts import views
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import Group, GroupMember, Member, User


class GroupService(Service):
    """Groups, which admins change."""

    def __init__(self, context: ServiceContext, accounts: AccountService) -> None:
        super().__init__(context)
        self._accounts = accounts
        self._turn = asyncio.Lock()
        """Held while a name is given, or a member is added."""

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> views.GroupPage:
        """List the groups that the caller sees by name: their own, and those with a role in their
        projects; an admin all."""
        members = (
            select(func.count())
            .select_from(GroupMember)
            .where(GroupMember.group == Group.name)
            .scalar_subquery()
        )
        query = select(Group, members).where(*_visible_groups(self._caller))
        async with self._db.session() as session:
            rows, following = await pagination.page_by_name(
                session, query, "groups", Group.name, limit, cursor
            )
        items = [views.Group.of(row, members=count) for row, count in rows]
        return views.GroupPage(items=items, next_cursor=following)

    async def create(self, name: str) -> views.Group:
        """Add a group without members.

        Raises:
            ConflictError: there is one of this name.
            ForbiddenError: the caller is no admin.
            InvalidValueError: the name is not allowed.
        """
        name = checked_name(name)
        self._caller.check_admin("add groups")
        async with self._turn, self._db.transaction() as session:
            check_unused("group", name, await session.scalars(select(Group.name)))
            group = Group(name=name, created_at=self._clock.now())
            session.add(group)
            await session.flush()
            self._audit(session, "group.create", name)
            return views.Group.of(group, members=0)

    async def delete(self, name: str) -> None:
        """Delete a group: its members lose the roles that they have by it.

        Raises:
            ForbiddenError: the caller is no admin.
            NotFoundError: there is no such group that they see.
        """
        async with self._db.transaction() as session:
            group = await self._find(session, name)
            self._caller.check_admin("delete groups")
            await session.delete(group)
            self._audit(session, "group.delete", group.name)
        self._accounts.forget_known()

    async def members(
        self, name: str, *, limit: int = 50, cursor: str | None = None
    ) -> views.GroupMemberPage:
        """List the users of a group by name.

        Raises:
            NotFoundError: there is no such group that the caller sees.
        """
        async with self._db.session() as session:
            group = await self._find(session, name)
            rows = await session.execute(
                select(User.name, GroupMember.by_provider)
                .join(User, User.id == GroupMember.user_id)
                .where(GroupMember.group == group.name)
                .order_by(User.name)
            )
            found = [views.GroupMember(user=user, by_provider=by) for user, by in rows]
        items, following = pagination.page_of("members", found, limit, cursor)
        return views.GroupMemberPage(items=items, next_cursor=following)

    async def add_member(self, name: str, user: str) -> None:
        """Add a user to a group.

        Raises:
            ConflictError: it is a service account of a project.
            ForbiddenError: the caller is no admin.
            NotFoundError: there is no such group or user that they see.
        """
        async with self._turn, self._db.transaction() as session:
            group = await self._find(session, name)
            self._caller.check_admin("change groups")
            found = await active_user(session, user)
            if found.project is not None:
                raise ConflictError(
                    f"{found.name} is a service account of project {found.project}, and has roles "
                    "there alone"
                )
            member = await session.get(GroupMember, (group.name, found.id))
            if member is None:
                member = GroupMember(group=group.name, user_id=found.id)
                session.add(member)
            member.by_provider = False
            self._audit(session, "group.change", group.name, detail=f"{found.name} was added")
        self._accounts.forget_known()

    async def remove_member(self, name: str, user: str) -> None:
        """Remove a user from a group.

        Raises:
            ForbiddenError: the caller is no admin.
            NotFoundError: there is no such group that they see, or no such user in it.
        """
        async with self._db.transaction() as session:
            group = await self._find(session, name)
            self._caller.check_admin("change groups")
            found = await active_user(session, user)
            done = await session.execute(
                delete(GroupMember)
                .where(GroupMember.group == group.name, GroupMember.user_id == found.id)
                .returning(GroupMember.user_id)
            )
            if done.first() is None:
                raise NotFoundError("member", user)
            self._audit(session, "group.change", group.name, detail=f"{found.name} was removed")
        self._accounts.forget_known()

    async def _find(self, session: AsyncSession, name: str) -> Group:
        group = await session.scalar(
            select(Group).where(Group.name == composed(name), *_visible_groups(self._caller))
        )
        if group is None:
            raise NotFoundError("group", name)
        return group


async def active_user(session: AsyncSession, name: str) -> User:
    """Return the user of a name, who is not removed before this transaction ends.

    Raises:
        NotFoundError: there is none, or they were removed.
    """
    query = select(User).where(User.name == composed(name), User.removed_at.is_(None))
    user = await session.scalar(query.with_for_update(read=True))
    if user is None:
        raise NotFoundError("user", name)
    return user


def _visible_groups(caller: Principal) -> list[ColumnElement[bool]]:
    if caller.is_admin:
        return []
    own = select(GroupMember.group).where(GroupMember.user_id == caller.user_id)
    of_projects = select(Member.group).where(
        Member.project.in_(sorted(caller.roles)), Member.group.is_not(None)
    )
    return [or_(Group.name.in_(own), Group.name.in_(of_projects))]
