"""Users: people and service accounts."""

import asyncio
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.names import check_unused, checked_name, composed
from trainhall.cluster.access.ownership import is_held
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.accounts import views
from trainhall.cluster.accounts.rows import demote, lock_admins
from trainhall.cluster.accounts.service import AccountService, check_whole, end_credentials
from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import GroupMember, Member, Secret, User


@dataclass(frozen=True, kw_only=True)
class UserChanges:
    """Changes to a user; None leaves as it is."""

    admin: bool | None = None
    removed: bool | None = None
    """False: restore; a removed user loses roles, groups and credentials."""
    password: str | None = None
    old_password: str | None = None
    """Needed for one's own."""


class UserService(Service):
    def __init__(self, context: ServiceContext, accounts: AccountService) -> None:
        super().__init__(context)
        self._accounts = accounts
        self._turn = asyncio.Lock()
        """Held while a name is given."""

    async def list(
        self, *, limit: int = 50, cursor: str | None = None, removed: bool = False
    ) -> views.UserPage:
        """List the users that the caller sees by name: the members of their projects, an admin all.

        Args:
            removed: those who were removed, in place of those who were not.
        """
        is_removed = User.removed_at.is_not(None) if removed else User.removed_at.is_(None)
        query = select(User).where(is_removed, *visible_users(self._caller))
        async with self._db.session() as session:
            rows, following = await pagination.page_by_name(
                session, query, "users", User.name, limit, cursor
            )
        return views.UserPage(items=[_view(user) for (user,) in rows], next_cursor=following)

    async def create(
        self,
        name: str,
        *,
        kind: views.UserKind = "person",
        admin: bool = False,
        password: str | None = None,
        project: str | None = None,
    ) -> views.User:
        """Add a user.

        Args:
            project: that a service account belongs to.

        Raises:
            ConflictError: there is, or was, one of this name.
            ForbiddenError, NotFoundError: the caller may not, or there is no such project that they
                see.
            InvalidValueError: the name is not allowed, or something does not fit the kind.
        """
        name = checked_name(name)
        if project is not None:
            project = composed(project)
            self._caller.check_manages(project, "add service accounts")
        else:
            self._caller.check_admin("add users")
        if kind == "person" and project is not None:
            raise InvalidValueError("project", project, "is for service accounts alone")
        if kind == "service" and (admin or password is not None):
            field = "admin" if admin else "password"
            raise InvalidValueError(field, None, "a service account has none")
        hashed = None
        if password is not None:
            hashed = await self._accounts.passwords.hash(password)
        async with self._turn, self._db.transaction() as session:
            known = (await session.execute(select(User.name, User.removed_at))).all()
            removed = {row.name for row in known if row.removed_at is not None}
            check_unused("user", name, [row.name for row in known], removed=removed)
            if project is not None and not await is_held(session, project):
                raise NotFoundError("project", project)
            user = User(
                id=self._ids.new(),
                name=name,
                kind=kind,
                project=project,
                is_admin=admin,
                password=hashed,
                created_at=self._clock.now(),
            )
            session.add(user)
            await session.flush()
            changes = {"kind": (None, kind), "admin": (False, admin), "password": (None, hashed)}
            self._audit(session, "user.create", name, project=project, changes=changes)
            return _view(user)

    async def change(self, name: str, changes: UserChanges) -> views.User:
        """Change a user: the password is their own affair, the rest is an admin's.

        Raises:
            ConflictError: there would be no admin any more, or they were removed.
            ForbiddenError, NotFoundError: the caller may not, or sees no such user.
            InvalidValueError: nothing is given, the old password is wrong, or something does not
                fit the kind.
            TooManyError: too many old passwords were wrong.
        """
        async with self._db.session() as session:
            user = await self._find(session, name)
        if (changes.admin, changes.removed, changes.password) == (None, None, None):
            raise InvalidValueError(
                "admin", None, "give what to change: admin, password or removed"
            )
        is_own = user.id == self._caller.user_id
        if changes.admin is not None or changes.removed is not None or not is_own:
            self._caller.check_admin("change users")
        if user.kind == "service" and (changes.admin or changes.password is not None):
            field = "admin" if changes.admin else "password"
            raise InvalidValueError(field, None, "a service account has none")
        hashed = None
        if changes.password is not None:
            if is_own:
                check_whole(self._caller, "change the password")
                await self._check_password(user, changes.old_password)
            hashed = await self._accounts.passwords.hash(changes.password)
        async with self._db.transaction() as session:
            if changes.admin is False or changes.removed:
                await lock_admins(session)
            row = await session.get_one(User, user.id, with_for_update=True)
            before = _audited(row)
            if changes.removed is not None:
                await self._set_removed(session, row, changes.removed)
            if changes.admin is not None:
                await _set_admin(session, row, changes.admin)
            if hashed is not None:
                await self._set_password(session, row, user.password, hashed)
            after = _audited(row)
            if after != before:
                changed_fields = {name: (before[name], value) for name, value in after.items()}
                self._audit(session, "user.change", row.name, changes=changed_fields)
            changed = _view(row)
        self._accounts.forget_known()
        return changed

    async def remove(self, name: str) -> None:
        """Remove a user: credentials, roles and groups end at once, and jobs continue.

        The name stays taken.

        Raises:
            ConflictError: it is the last admin.
            ForbiddenError, NotFoundError: the caller may not, or sees no such user.
        """
        async with self._db.transaction() as session:
            await lock_admins(session)
            row = await self._find(session, name, locked=True)
            if row.project is not None:
                self._caller.check_manages(row.project, "remove service accounts")
            else:
                self._caller.check_admin("remove users")
            if row.removed_at is None:
                await self._set_removed(session, row, True)
                self._audit(session, "user.remove", row.name, project=row.project)
        self._accounts.forget_known()

    async def _find(self, session: AsyncSession, name: str, *, locked: bool = False) -> User:
        query = select(User).where(User.name == composed(name), *visible_users(self._caller))
        user = await session.scalar(query.with_for_update() if locked else query)
        if user is None:
            raise NotFoundError("user", name)
        return user

    async def _check_password(self, user: User, given: str | None) -> None:
        if user.password is None:
            return
        if given is None:
            raise InvalidValueError("old_password", None, "is needed to change your own password")
        pauses, key = self._accounts.pauses, f"own {user.id}"  # not those of others who log in
        with pauses.attempt([key]):
            if not await self._accounts.passwords.matches(given, user.password):
                raise InvalidValueError("old_password", None, "is wrong")
        pauses.forget(key)

    async def _set_password(
        self, session: AsyncSession, row: User, before: str | None, hashed: str
    ) -> None:
        if row.removed_at is not None:
            raise ConflictError(f"user {row.name} was removed; restore them first")
        if row.password != before:
            raise ConflictError(f"the password of {row.name} was changed meanwhile")
        row.password = hashed
        is_own_session = row.id == self._caller.user_id and self._caller.how == "session"
        keep = self._caller.credential_id if is_own_session else ""
        await end_credentials(session, row.id, keep=keep)

    async def _set_removed(self, session: AsyncSession, row: User, removed: bool) -> None:
        if removed == (row.removed_at is not None):
            return
        if not removed:
            row.removed_at = None
            return
        await _set_admin(session, row, False)
        row.removed_at = self._clock.now()
        row.password = None
        await end_credentials(session, row.id, tokens=True)
        for table in (GroupMember, Member, Secret):
            await session.execute(delete(table).where(table.user_id == row.id))


async def _set_admin(session: AsyncSession, row: User, admin: bool) -> None:
    if admin and row.removed_at is not None:
        raise ConflictError(f"user {row.name} was removed; restore them first")
    if row.is_admin and not admin and not await demote(session, row):
        raise ConflictError(f"{row.name} is the last admin; make another user an admin first")
    row.is_admin = admin
    row.admin_by_provider = False  # it is as an admin says now


def visible_users(caller: Principal) -> list[ColumnElement[bool]]:
    """Return the conditions under which a caller sees users: those of their projects."""
    if caller.is_admin:
        return []
    projects = sorted(name for name in caller.roles if caller.may(Action.READ, name))
    members = select(Member.user_id).where(
        Member.project.in_(projects), Member.user_id.is_not(None)
    )
    groups = select(Member.group).where(Member.project.in_(projects), Member.group.is_not(None))
    of_groups = select(GroupMember.user_id).where(GroupMember.group.in_(groups))
    return [
        or_(
            User.id == caller.user_id,
            User.id.in_(members),
            User.id.in_(of_groups),
            User.project.in_(projects),
        )
    ]


def _audited(row: User) -> dict[str, Any]:
    removed = row.removed_at is not None
    return {"admin": row.is_admin, "removed": removed, "password": row.password}


def _view(row: User) -> views.User:
    return views.User.of(row, admin=row.is_admin)
