"""Accounts: the first admin, logins, sessions, and API tokens."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.names import composed
from trainhall.cluster.access.networks import network_of
from trainhall.cluster.access.ownership import is_held
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.accounts import views
from trainhall.cluster.accounts.lookup import CredentialLookup
from trainhall.cluster.accounts.passwords import Passwords
from trainhall.cluster.accounts.pauses import Pauses
from trainhall.cluster.accounts.reach import Reach
from trainhall.cluster.accounts.rows import lock_user
from trainhall.cluster.accounts.secrets import sha256, token_of
from trainhall.cluster.accounts.sessions import add_session
from trainhall.cluster.errors import (
    ConflictError,
    ForbiddenError,
    InvalidValueError,
    NotAllowedError,
    NotFoundError,
)
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import ApiToken, LoginCode, LoginSession, User
from trainhall.db.views import rfc3339

TOKEN_LIFE = timedelta(days=90)
"""Life of an API token for which no other was asked."""
CODE_SECONDS = 60.0
MAX_CODE_LIFE = timedelta(minutes=10)
"""No code is given a longer life: one that has more was made before the clock was set back."""
MAX_TOKENS = 100
"""API tokens of a user."""
METRICS_SCOPE = "metrics"
"""Scope of an API token that reads the figures for Prometheus, and nothing else."""
WHOLE = Reach(None, None, None)
"""Reach of a token that may do whatever its user may."""

_FIRST_ADMIN = (
    select(User)
    .where(User.is_admin, User.removed_at.is_(None))
    .order_by(User.created_at, User.id)
    .limit(1)
)


class AccountService(CredentialLookup):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self.passwords = Passwords()
        self.pauses = Pauses(self._clock.monotonic)

    # -- the first admin -------------------------------------------------------------------------

    async def ensure_admin(self, name: str) -> Principal:
        """Return an admin: the first one, or one of this name if there is none."""
        async with self._db.session() as session:
            user = await session.scalar(_FIRST_ADMIN)
        if user is None:
            try:
                user = await self._new_admin(name)
            except IntegrityError:  # another coordinator has just made it
                async with self._db.session() as session:
                    user = (await session.scalars(_FIRST_ADMIN)).one()
        return Principal(user.name, True, "none", user.id)

    async def _new_admin(self, name: str) -> User:
        user = User(id=self._ids.new(), name=name, is_admin=True, created_at=self._clock.now())
        async with self._db.transaction() as session:
            session.add(user)
        return user

    async def replace_token(self, name: str) -> str:
        """Return a new token without an end, in place of all of the caller's of this name."""
        async with self._db.transaction() as session:
            await session.execute(
                delete(ApiToken).where(
                    ApiToken.user_id == self._caller.user_id, ApiToken.name == name
                )
            )
            _, token = self._add_token(session, self._caller.user_id, name, None, WHOLE)
            await session.flush()
        self.forget_known()
        return token

    # -- login -----------------------------------------------------------------------------------

    async def new_code(self, seconds: float = CODE_SECONDS) -> views.LoginLink:
        """Return a code that logs one browser in as the caller, once.

        Raises:
            ForbiddenError: it is a service account, or the caller's token is narrowed.
            NotAllowedError: the user was removed.
        """
        check_whole(self._caller, "log in")
        now = self._clock.now()
        code = self._ids.secret()
        expires = now + timedelta(seconds=seconds)
        async with self._db.transaction() as session:
            _check_person(await _locked(session, self._caller.user_id), "log in")
            over = or_(LoginCode.expires_at <= now, LoginCode.expires_at > now + MAX_CODE_LIFE)
            await session.execute(delete(LoginCode).where(over))
            session.add(
                LoginCode(sha256=sha256(code), user_id=self._caller.user_id, expires_at=expires)
            )
            self._audit(session, "link.create", self._caller.user)
        return views.LoginLink(code=code, expires_at=expires)

    async def log_in(self, code: str, client: str, address: str = "") -> str:
        """Trade the code of a link for a session; return its secret.

        Args:
            client: the browser's description of itself.
            address: where it is.

        Raises:
            NotAllowedError: the code is unknown, was used, or has expired.
        """
        now = self._clock.now()
        of_code = (
            LoginCode.sha256 == sha256(code),
            LoginCode.expires_at > now,
            LoginCode.expires_at <= now + MAX_CODE_LIFE,
        )
        async with self._db.transaction() as session:
            user_id = await session.scalar(select(LoginCode.user_id).where(*of_code))
            # Before the code, as a removal does.
            user = await lock_user(session, user_id) if user_id is not None else None
            taken = delete(LoginCode).where(*of_code).returning(LoginCode.user_id)
            if user is not None and (await session.execute(taken)).first() is not None:
                return await add_session(
                    session, user, client, clock=self._clock, ids=self._ids,
                    address=address, detail="by a link",
                )  # fmt: skip
        raise NotAllowedError(
            "the login link was used before, or has expired; make another with `trainhall open`"
        )

    async def log_in_by_password(self, name: str, password: str, address: str, client: str) -> str:
        """Trade a name and a password for a session; return its secret.

        It takes as long, and fails in the same way, for names that there are not.

        Args:
            address: that the request comes from.
            client: the browser's description of itself.

        Raises:
            NotAllowedError: the name or the password is wrong.
            TooManyError: so many were wrong that the next attempt has to wait, or too many are
                checked at the moment.
        """
        name = composed(name)
        network = network_of(address)
        here, of_network = f"name {name.casefold()} at {network}", f"network {network}"
        # Wrong passwords elsewhere do not keep those out who have logged in from here.
        of_name = here if self.pauses.has_succeeded(here) else f"name {name.casefold()}"
        known = (User.name == name, User.removed_at.is_(None), User.kind == "person")
        with self.pauses.attempt([of_name, of_network]):
            async with self._db.session() as session:
                hashed = await session.scalar(select(User.password).where(*known))
            is_right = await self.passwords.matches(password, hashed)
        if is_right:
            async with self._db.transaction() as session:
                # Neither was she removed meanwhile, nor her password changed.
                same = select(User).where(*known, User.password == hashed)
                user = await session.scalar(same.with_for_update(key_share=True))
                if user is not None:
                    self.pauses.forget(of_name)
                    self.pauses.undo(of_network)
                    self.pauses.note_success(here)
                    return await add_session(
                        session, user, client, clock=self._clock, ids=self._ids,
                        address=address, detail="by a password",
                    )  # fmt: skip
        raise NotAllowedError("the name or the password is wrong")

    async def has_passwords(self) -> bool:
        """Return whether anybody can log in by a password."""
        known = select(User.id).where(User.password.is_not(None), User.removed_at.is_(None))
        async with self._db.session() as session:
            return await session.scalar(known.limit(1)) is not None

    # -- a user's own ----------------------------------------------------------------------------

    async def create_token(
        self,
        name: str,
        expires_at: datetime | None = None,
        reach: Reach = WHOLE,
        user: str | None = None,
    ) -> views.NewApiToken:
        """Create an API token, for 90 days if no other end is given.

        Args:
            reach: what it is narrowed to.
            user: the service account that it is for; None: the caller.

        Raises:
            ConflictError: the user has one of this name, or too many.
            ForbiddenError: the caller may not create such a token.
            InvalidValueError: it would reach further than the caller.
            NotAllowedError: the user was removed.
            NotFoundError: there is no such user that the caller sees.
        """
        check_whole(self._caller, "create tokens")
        if user is None:
            _check_reach(self._caller, reach)
        elif reach.scopes:
            self._caller.check_admin(f"create tokens with the scope {METRICS_SCOPE}")
        async with self._db.transaction() as session:
            if user is None:
                user_id, subject = self._caller.user_id, "you have"
                _check_person(await _locked(session, user_id), "create tokens")
            else:
                user_id, subject = await _managed(session, self._caller, user), f"{user} has"
                is_person = (await _locked(session, user_id)).kind == "person"
                if user_id != self._caller.user_id and is_person:
                    raise ForbiddenError(f"{user} is a person, who creates tokens herself")
            if reach.project is not None and not await is_held(session, reach.project):
                raise _no_project(reach.project)
            # Tokens that have expired leave room for new ones.
            await session.execute(
                delete(ApiToken).where(
                    ApiToken.user_id == user_id, ApiToken.expires_at <= self._clock.now()
                )
            )
            names = (
                await session.scalars(select(ApiToken.name).where(*_own_tokens(user_id)))
            ).all()
            if name in names:
                raise ConflictError(
                    f"{subject} a token {name!r} already; use another name, or remove it first"
                )
            if len(names) >= MAX_TOKENS:
                raise ConflictError(f"{subject} {MAX_TOKENS} tokens already; remove some first")
            end = expires_at or self._clock.now() + TOKEN_LIFE
            row, token = self._add_token(session, user_id, name, end, reach)
            changes = {"name": (None, name), "expires_at": (None, rfc3339(end)), **reach.changes}
            self._audit(session, "token.create", row.id, detail=user or "", changes=changes)
            await session.flush()
            return views.NewApiToken.of(row, token=token)

    def _add_token(
        self,
        session: AsyncSession,
        user_id: str,
        name: str,
        expires_at: datetime | None,
        reach: Reach,
    ) -> tuple[ApiToken, str]:
        token = token_of(self._ids.secret())
        row = ApiToken(
            id=self._ids.new(),
            sha256=sha256(token),
            user_id=user_id,
            name=name,
            created_at=self._clock.now(),
            used_at=None,
            expires_at=expires_at,
            project=reach.project,
            role=reach.role.value if reach.role is not None else None,
            scopes=sorted(reach.scopes) or None,
        )
        session.add(row)
        return row, token

    async def tokens(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        user: str | None = None,
    ) -> views.ApiTokenPage:
        """List the API tokens of a user, the oldest first.

        Args:
            user: whose; None: the caller's, of whom a narrowed token sees itself alone.

        Raises:
            ForbiddenError: the caller may not.
            NotFoundError: there is no such user that the caller sees.
        """
        async with self._db.session() as session:
            user_id = self._caller.user_id
            if user is not None:
                user_id = await _managed(session, self._caller, user)
            query = select(ApiToken).where(*_own_tokens(user_id))
            if self._caller.is_narrowed and user_id == self._caller.user_id:
                query = query.where(ApiToken.id == self._caller.credential_id)
            rows = await session.scalars(query.order_by(ApiToken.created_at, ApiToken.id))
            found = [views.ApiToken.of(row) for row in rows]
        items, following = pagination.page_of("tokens", found, limit, cursor)
        return views.ApiTokenPage(items=items, next_cursor=following)

    async def sessions(self, *, limit: int = 50, cursor: str | None = None) -> views.SessionPage:
        """List the caller's sessions, the oldest first.

        Raises:
            ForbiddenError: the caller's token is narrowed.
        """
        check_whole(self._caller, "list sessions")
        query = select(LoginSession).where(
            LoginSession.user_id == self._caller.user_id,
            LoginSession.expires_at > self._clock.now(),
        )
        async with self._db.session() as session:
            rows = await session.scalars(query.order_by(LoginSession.created_at, LoginSession.id))
            found = [
                views.Session.of(row, current=row.id == self._caller.credential_id) for row in rows
            ]
        items, following = pagination.page_of("sessions", found, limit, cursor)
        return views.SessionPage(items=items, next_cursor=following)

    async def revoke_token(self, token_id: str) -> None:
        """End an API token: the caller's own, or one of a user whose tokens they manage.

        Raises:
            ForbiddenError: the caller's token is narrowed, and it is another one.
            NotFoundError: there is none of this id that they could end.
        """
        if token_id != self._caller.credential_id:
            check_whole(self._caller, "revoke other tokens")
        async with self._db.transaction() as session:
            found = await session.execute(
                select(ApiToken, User.name)
                .join(User, User.id == ApiToken.user_id)
                .where(ApiToken.id == token_id)
            )
            row = found.one_or_none()
            if row is None or not (
                row[0].user_id == self._caller.user_id
                or await _manages(session, self._caller, row[1])
            ):
                raise NotFoundError("token", token_id)
            await session.delete(row[0])
            self._audit(session, "token.delete", token_id)
        self.forget_known()

    async def end_session(self, session_id: str) -> None:
        """Log one of the caller's browsers out.

        Raises:
            ForbiddenError: the caller's token is narrowed.
            NotFoundError: the caller has no session of this id.
        """
        check_whole(self._caller, "end sessions")
        async with self._db.transaction() as session:
            done = await session.execute(
                delete(LoginSession)
                .where(LoginSession.id == session_id, LoginSession.user_id == self._caller.user_id)
                .returning(LoginSession.id)
            )
            if done.first() is None:
                raise NotFoundError("session", session_id)
            self._audit(session, "session.end", session_id)
        self.forget_known()


def _own_tokens(user_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return what the tokens fulfil that a user manages: not those of attempts."""
    return ApiToken.user_id == user_id, ApiToken.job_id.is_(None)


def check_whole(principal: Principal, purpose: str) -> None:
    """Check that the caller's credential is not a narrowed token.

    Args:
        purpose: for the message, such as "create tokens".

    Raises:
        ForbiddenError: it is one.
    """
    if principal.is_narrowed:
        raise ForbiddenError(f"a narrowed token may not {purpose}; log in, or use a whole token")


async def end_credentials(
    session: AsyncSession, user_id: str, *, keep: str = "", tokens: bool = False
) -> None:
    """End the sessions and login links of a user.

    Args:
        keep: id of a session that stays.
        tokens: end the API tokens, too.
    """
    await session.execute(
        delete(LoginSession).where(LoginSession.user_id == user_id, LoginSession.id != keep)
    )
    await session.execute(delete(LoginCode).where(LoginCode.user_id == user_id))
    if tokens:
        await session.execute(delete(ApiToken).where(ApiToken.user_id == user_id))


def _check_reach(principal: Principal, reach: Reach) -> None:
    """Check that a token would reach no further than its user."""
    if reach.scopes:
        principal.check_admin(f"create tokens with the scope {METRICS_SCOPE}")
    if principal.is_admin or (reach.project is None and reach.role is None):
        return
    projects = [reach.project] if reach.project is not None else sorted(principal.roles)
    known = {name: principal.roles.get(name) for name in projects}
    if reach.project is not None and known[reach.project] is None:
        raise _no_project(reach.project)
    highest = max((role for role in known.values() if role), key=lambda r: r.rank, default=None)
    if reach.role is not None and (highest is None or reach.role.rank > highest.rank):
        where = f"in project {reach.project}" if reach.project else "in any project"
        raise InvalidValueError("role", reach.role, f"you do not have this role {where}")


def _no_project(project: str) -> InvalidValueError:
    return InvalidValueError("project", project, f"you have no role in a project {project!r}")


async def _locked(session: AsyncSession, user_id: str) -> User:
    """Return a user, to whom a credential is given: one that was looked up before a removal, as of
    a login that waits, is none any more."""
    user = await lock_user(session, user_id)
    if user is None:
        raise NotAllowedError("the user was removed; an admin can restore the account")
    return user


def _check_person(user: User, purpose: str) -> None:
    if user.kind == "service":
        raise ForbiddenError(f"a service account cannot {purpose}")


async def _manages(session: AsyncSession, principal: Principal, name: str) -> bool:
    try:
        await _managed(session, principal, name)
    except (ForbiddenError, NotFoundError):
        return False
    return True


async def _managed(session: AsyncSession, principal: Principal, name: str) -> str:
    """Return the id of a user whose tokens the caller manages: their own, those of a service
    account of a project that they maintain; an admin all.

    Raises:
        ForbiddenError: they do not.
        NotFoundError: there is no such user that they see.
    """
    row = (
        await session.execute(
            select(User.id, User.kind, User.project).where(
                User.name == composed(name), User.removed_at.is_(None)
            )
        )
    ).one_or_none()
    if row is None:
        raise NotFoundError("user", name)
    user_id, kind, project = row
    if principal.is_admin or user_id == principal.user_id:
        return str(user_id)
    if kind == "service" and project is not None and principal.may(Action.READ, project):
        principal.check_manages(project, f"manage tokens of {name}")
        return str(user_id)
    raise NotFoundError("user", name)
