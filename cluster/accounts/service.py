"""Accounts: the first admin, who a credential belongs to, and what users do with their own."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import bindparam, delete, null, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.principal import How, Principal
from trainhall.cluster.accounts import views
from trainhall.cluster.accounts.reach import Reach, read_roles
from trainhall.cluster.accounts.secrets import is_token, sha256, token_of
from trainhall.cluster.accounts.sessions import add_session
from trainhall.cluster.errors import ConflictError, NotAllowedError, NotFoundError
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import ApiToken, LoginCode, LoginSession, User
from trainhall.db.views import rfc3339

log = structlog.get_logger(__name__)

TOKEN_LIFE = timedelta(days=90)
"""Life of an API token for which no other was asked."""
CODE_SECONDS = 60.0
MAX_CODE = 128
MAX_TOKENS = 100
"""API tokens of a user."""
CACHE_SECONDS = 5.0
"""A credential is trusted for so long without another look-up; one that ends here ends at once."""
USE_SECONDS = 60.0
"""The last use of a credential is stored at most so often."""

_OF_TOKEN = (
    select(
        ApiToken.id, ApiToken.name, ApiToken.used_at, ApiToken.expires_at,
        User.id, User.name, User.is_admin, ApiToken.project, ApiToken.role, ApiToken.scopes,
    )
    .join(User, User.id == ApiToken.user_id)
    .where(ApiToken.sha256 == bindparam("sha256"), User.removed_at.is_(None))
)  # fmt: skip
_OF_SESSION = (
    select(
        LoginSession.id, LoginSession.id, LoginSession.used_at, LoginSession.expires_at,
        User.id, User.name, User.is_admin, null(), null(), null(),
    )
    .join(User, User.id == LoginSession.user_id)
    .where(LoginSession.sha256 == bindparam("sha256"), User.removed_at.is_(None))
)  # fmt: skip

_FIRST_ADMIN = select(User).where(User.is_admin).order_by(User.created_at, User.id).limit(1)


@dataclass(frozen=True)
class _Known:
    """A credential that was looked up."""

    principal: Principal
    until: float
    """Monotonic time until which that is trusted."""


class AccountService(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._known: dict[str, _Known] = {}
        """By the hash of the credential; only valid ones."""
        self._stored: set[asyncio.Task[None]] = set()
        """Last uses that are being stored."""

    async def stop(self) -> None:
        """Wait for what is being stored."""
        await asyncio.gather(*self._stored)

    # -- credentials of requests -----------------------------------------------------------------

    async def of_token(self, token: str) -> Principal | None:
        """Return whose API token this is; None for one that is unknown or has expired."""
        return await self._principal(token, "token") if is_token(token) else None

    async def of_session(self, secret: str) -> Principal | None:
        """Return whose session this is; None for one that is unknown or has expired."""
        return await self._principal(secret, "session") if len(secret) <= MAX_CODE else None

    async def _principal(self, secret: str, how: How) -> Principal | None:
        digest = sha256(secret)
        known = self._known.get(digest)
        if known is not None and known.until > self._clock.monotonic():
            return known.principal
        self._known.pop(digest, None)
        query = _OF_TOKEN if how == "token" else _OF_SESSION
        now = self._clock.now()
        async with self._db.session() as session:
            row = (await session.execute(query, {"sha256": digest})).first()
            if row is None or (row[3] is not None and row[3] <= now):
                return None
            credential_id, called, used_at, expires_at, user_id, name, is_admin, *narrowed = row
            reach = Reach(*narrowed)
            roles = await read_roles(session, user_id, is_admin, reach)
        principal = Principal(
            name, is_admin and reach.is_whole, how, user_id, credential_id, called,
            roles=roles, scopes=reach.scopes,
        )  # fmt: skip
        trusted = CACHE_SECONDS
        if expires_at is not None:
            trusted = min(trusted, (expires_at - now).total_seconds())
        self._known[digest] = _Known(principal, self._clock.monotonic() + trusted)
        if used_at is None or (now - used_at).total_seconds() >= USE_SECONDS:
            # The request does not wait for it.
            task = asyncio.create_task(self._store_use(principal, now), name="use of a credential")
            self._stored.add(task)
            task.add_done_callback(self._stored.discard)
        return principal

    async def _store_use(self, principal: Principal, now: datetime) -> None:
        table = ApiToken if principal.how == "token" else LoginSession
        try:
            async with self._db.transaction() as session:
                used = update(table).where(table.id == principal.credential_id).values(used_at=now)
                await session.execute(used)
        except DBAPIError as error:
            # It can be read, which is all that the request needs.
            log.warning("use_of_credential_not_stored", error=str(error.orig))

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

    async def replace_token(self, principal: Principal, name: str) -> str:
        """Return a new token without an end, in place of all of the user's of this name."""
        async with self._db.transaction() as session:
            await session.execute(
                delete(ApiToken).where(ApiToken.user_id == principal.user_id, ApiToken.name == name)
            )
            _, token = self._add_token(session, principal, name, None)
            await session.flush()
        self._known.clear()
        return token

    # -- login -----------------------------------------------------------------------------------

    async def new_code(
        self, principal: Principal, seconds: float = CODE_SECONDS
    ) -> views.LoginLink:
        """Return a code that logs one browser in as this user, once."""
        now = self._clock.now()
        code = self._ids.secret()
        expires = now + timedelta(seconds=seconds)
        async with self._db.transaction() as session:
            await session.execute(delete(LoginCode).where(LoginCode.expires_at <= now))
            session.add(
                LoginCode(sha256=sha256(code), user_id=principal.user_id, expires_at=expires)
            )
            self._audit(session, "link.create", principal.user)
        return views.LoginLink(code=code, expires_at=expires)

    async def log_in(self, code: str, client: str, address: str = "") -> str:
        """Trade the code of a link for a session; return its secret.

        Args:
            client: the browser's description of itself.
            address: where it is.

        Raises:
            NotAllowedError: the code is unknown, was used, or has expired.
        """
        async with self._db.transaction() as session:
            taken = delete(LoginCode).where(LoginCode.sha256 == sha256(code))
            row = (
                await session.execute(taken.returning(LoginCode.user_id, LoginCode.expires_at))
            ).first()
            if row is not None and row[1] > self._clock.now():
                return await add_session(
                    session, row[0], client, clock=self._clock, ids=self._ids,
                    address=address, detail="by a link",
                )  # fmt: skip
        raise NotAllowedError(
            "the login link was used before, or has expired; make another with `trainhall open`"
        )

    # -- a user's own ----------------------------------------------------------------------------

    async def create_token(
        self, principal: Principal, name: str, expires_at: datetime | None = None
    ) -> views.NewApiToken:
        """Create an API token, for 90 days if no other end is given.

        Raises:
            ConflictError: the user has one of this name, or too many.
        """
        async with self._db.transaction() as session:
            # Tokens that have expired leave room for new ones.
            await session.execute(
                delete(ApiToken).where(
                    ApiToken.user_id == principal.user_id, ApiToken.expires_at <= self._clock.now()
                )
            )
            names = (
                await session.scalars(
                    select(ApiToken.name).where(ApiToken.user_id == principal.user_id)
                )
            ).all()
            if name in names:
                raise ConflictError(
                    f"you have a token {name!r} already; use another name, or remove it first"
                )
            if len(names) >= MAX_TOKENS:
                raise ConflictError(f"you have {MAX_TOKENS} tokens already; remove some first")
            end = expires_at or self._clock.now() + TOKEN_LIFE
            row, token = self._add_token(session, principal, name, end)
            changes = {"name": (None, name), "expires_at": (None, rfc3339(end))}
            self._audit(session, "token.create", row.id, changes=changes)
            await session.flush()
            return views.NewApiToken.of(row, token=token)

    def _add_token(
        self, session: AsyncSession, principal: Principal, name: str, expires_at: datetime | None
    ) -> tuple[ApiToken, str]:
        token = token_of(self._ids.secret())
        row = ApiToken(
            id=self._ids.new(),
            sha256=sha256(token),
            user_id=principal.user_id,
            name=name,
            created_at=self._clock.now(),
            used_at=None,
            expires_at=expires_at,
        )
        session.add(row)
        return row, token

    async def tokens(
        self, principal: Principal, *, limit: int = 50, cursor: str | None = None
    ) -> views.ApiTokenPage:
        """List the user's API tokens, the oldest first."""
        query = select(ApiToken).where(ApiToken.user_id == principal.user_id)
        async with self._db.session() as session:
            rows = await session.scalars(query.order_by(ApiToken.created_at, ApiToken.id))
            found = [views.ApiToken.of(row) for row in rows]
        items, following = pagination.page_of("tokens", found, limit, cursor)
        return views.ApiTokenPage(items=items, next_cursor=following)

    async def sessions(
        self, principal: Principal, *, limit: int = 50, cursor: str | None = None
    ) -> views.SessionPage:
        """List the user's sessions, the oldest first."""
        query = select(LoginSession).where(
            LoginSession.user_id == principal.user_id,
            LoginSession.expires_at > self._clock.now(),
        )
        async with self._db.session() as session:
            rows = await session.scalars(query.order_by(LoginSession.created_at, LoginSession.id))
            found = [
                views.Session.of(row, current=row.id == principal.credential_id) for row in rows
            ]
        items, following = pagination.page_of("sessions", found, limit, cursor)
        return views.SessionPage(items=items, next_cursor=following)

    async def revoke_token(self, principal: Principal, token_id: str) -> None:
        """End one of the user's API tokens.

        Raises:
            NotFoundError: the user has none of this id.
        """
        if not await self._remove(ApiToken, principal, token_id):
            raise NotFoundError("token", token_id)

    async def end_session(self, principal: Principal, session_id: str) -> None:
        """Log one of the user's browsers out.

        Raises:
            NotFoundError: the user has no session of this id.
        """
        if not await self._remove(LoginSession, principal, session_id):
            raise NotFoundError("session", session_id)

    async def _remove(
        self, table: type[ApiToken | LoginSession], principal: Principal, row_id: str
    ) -> bool:
        async with self._db.transaction() as session:
            done = await session.execute(
                delete(table)
                .where(table.id == row_id, table.user_id == principal.user_id)
                .returning(table.id)
            )
            found = done.first() is not None
            if found:
                action = "token.delete" if table is ApiToken else "session.end"
                self._audit(session, action, row_id)
        self._known.clear()
        return found
