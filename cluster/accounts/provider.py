"""Users who an OpenID provider knows: their first login, and their rights by rules."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access import audit
from trainhall.cluster.access.names import RESERVED, composed, is_allowed
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.rows import demote, lock_admins
from trainhall.cluster.accounts.rules import Rule
from trainhall.cluster.accounts.sessions import add_session
from trainhall.cluster.errors import ForbiddenError
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.accounts import Group, GroupMember, Member, Project, User
from trainhall.db.database import Database
from trainhall.db.sanitize import sanitize_text

log = structlog.get_logger(__name__)

MAX_NAME = 96
MAX_SUBJECT = 255
BY_PROVIDER = "by an OpenID provider"
"""Note in the audit log."""
UNNAMED = "user"
"""Name of users whose provider sends none that can be used."""
_ATTEMPTS = 3


@dataclass(frozen=True)
class Identity:
    """A person, as the provider described them in an ID token that was verified."""

    issuer: str
    subject: str
    name: str
    """Wished for; it need not be unique, nor the person's for good."""
    groups: frozenset[str]


class ProviderAccounts:
    """Accounts of the people whom one provider logs in.

    Issuer and subject are their identity; names and mail addresses may pass to somebody else.

    Args:
        on_change: called when rights of a user have changed.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock,
        ids: Ids,
        rules: Sequence[Rule],
        *,
        on_change: Callable[[], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids
        self._rules = rules
        self._on_change = on_change

    async def withdraw(self) -> None:
        """End rights that no rule gives any longer."""
        groups = sorted({rule.local_group for rule in self._rules if rule.local_group is not None})
        async with self._db.transaction() as session:
            await session.execute(
                delete(GroupMember).where(GroupMember.by_provider, GroupMember.group.not_in(groups))
            )
            if not any(rule.admin for rule in self._rules):
                await lock_admins(session)
                for user in await session.scalars(select(User).where(User.admin_by_provider)):
                    await _withdraw_admin(session, user)

    async def log_in(self, identity: Identity, client: str, address: str = "") -> str:
        """Log a browser in, as a user that is made at the first login; return its secret.

        Args:
            client: the browser's description of itself.
            address: where it is.

        Raises:
            ForbiddenError: the user was removed, or has an identity that cannot be kept.
        """
        if not 0 < len(identity.subject) <= MAX_SUBJECT:
            raise ForbiddenError("the provider's subject of this user is empty or too long")
        attempt = 1
        while True:
            try:
                async with self._db.transaction() as session:
                    if any(rule.admin for rule in self._rules):
                        await lock_admins(session)
                    user = await self._user(session, identity, address)
                    changed = await self._apply(session, user, identity.groups, address)
                    secret = await add_session(
                        session, user, client, clock=self._clock, ids=self._ids,
                        address=address, detail=BY_PROVIDER,
                    )  # fmt: skip
                if changed:
                    self._on_change()
                return secret
            except IntegrityError:  # the same name or the same person at once
                if attempt == _ATTEMPTS:
                    raise
                attempt += 1

    def _audit(
        self,
        session: AsyncSession,
        user: User,
        address: str,
        action: str,
        changes: audit.Changes | None = None,
        *,
        name: str | None = None,
        detail: str = BY_PROVIDER,
    ) -> None:
        caller = Principal(user.name, user.is_admin, "session", user.id, address=address)
        audit.record(
            session, caller, action, self._clock.now(), name=name or user.name, changes=changes,
            detail=detail,
        )  # fmt: skip

    async def _user(self, session: AsyncSession, identity: Identity, address: str) -> User:
        user = await session.scalar(
            select(User)
            .where(User.issuer == identity.issuer, User.subject == identity.subject)
            .with_for_update(key_share=True)
        )
        if user is not None and user.removed_at is not None:
            raise ForbiddenError(
                f"the user {user.name} was removed; an admin can restore the account"
            )
        if user is None:
            names = await session.scalars(select(User.name))
            user = User(
                id=self._ids.new(),
                name=free_name(identity.name, names),
                is_admin=False,
                issuer=identity.issuer,
                subject=identity.subject,
                created_at=self._clock.now(),
            )
            session.add(user)
            await session.flush()
            self._audit(session, user, address, "user.create")
            log.info("user_created_by_provider", user=user.name, issuer=identity.issuer)
        return user

    async def _apply(
        self, session: AsyncSession, user: User, groups: frozenset[str], address: str
    ) -> bool:
        """Give the rights of a user's groups, and end those of groups that they left.

        Returns:
            Whether any right has changed.
        """
        rules = [rule for rule in self._rules if rule.group in groups]
        was_admin = user.is_admin
        if any(rule.admin for rule in rules):
            if not was_admin:
                user.is_admin = user.admin_by_provider = True
        elif user.admin_by_provider:
            await _withdraw_admin(session, user)
        if user.is_admin != was_admin:
            changes = {"admin": (was_admin, user.is_admin)}
            self._audit(session, user, address, "user.change", changes)
        changed = await self._apply_groups(session, user, rules)
        for name, verb in changed.items():
            detail = f"{user.name} was {verb} {BY_PROVIDER}"
            self._audit(session, user, address, "group.change", name=name, detail=detail)
        return bool(changed) or user.is_admin != was_admin

    async def _apply_groups(
        self, session: AsyncSession, user: User, rules: Sequence[Rule]
    ) -> dict[str, str]:
        """Return the groups here that the user joined or left, and which of both."""
        wanted: set[str] = set()
        for rule in rules:
            if rule.local_group is not None and await self._group(session, rule):
                wanted.add(rule.local_group)
        known = {
            row.group: row
            for row in await session.scalars(
                select(GroupMember).where(GroupMember.user_id == user.id)
            )
        }
        changed = {}
        for group, row in known.items():
            if row.by_provider and group not in wanted:
                await session.delete(row)
                changed[group] = "removed"
        for group in sorted(wanted - known.keys()):
            session.add(GroupMember(group=group, user_id=user.id, by_provider=True))
            changed[group] = "added"
        await session.flush()
        return changed

    async def _group(self, session: AsyncSession, rule: Rule) -> bool:
        """Make the group of a rule, with its role; return False if it cannot be."""
        name = rule.local_group
        assert name is not None
        if rule.project is not None and await session.get(Project, rule.project) is None:
            log.warning("rule_without_project", group=rule.group, project=rule.project)
            return False
        if await session.get(Group, name) is None:
            session.add(Group(name=name, created_at=self._clock.now()))
            await session.flush()
        if rule.project is None:
            return True
        member = await session.scalar(
            select(Member).where(Member.project == rule.project, Member.group == name)
        )
        if member is None:
            role = str(rule.role)
            made = Member(id=self._ids.new(), project=rule.project, group=name, role=role)
            session.add(made)
            await session.flush()
        return True


async def _withdraw_admin(session: AsyncSession, user: User) -> None:
    """End what the provider gave, unless nobody else could give it back."""
    if not await demote(session, user):
        log.warning("last_admin_kept", user=user.name)


def free_name(wished: str, taken: Iterable[str]) -> str:
    """Return a name that nobody has or had: as wished, else followed by -2, -3 and so on.

    Upper and lower case are the same name.
    """
    known = {composed(name.casefold()) for name in taken} | RESERVED
    text = "".join(char if is_allowed(char) else " " for char in composed(sanitize_text(wished)))
    base = " ".join(text.split())[:MAX_NAME].strip() or UNNAMED
    number, name = 1, base
    while composed(name.casefold()) in known:
        number += 1
        name = f"{base}-{number}"
    return name
