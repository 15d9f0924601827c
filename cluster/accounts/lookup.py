"""Look-up of the user of a credential, kept for seconds."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog
from sqlalchemy import bindparam, null, or_, select, update
from sqlalchemy.exc import DBAPIError

from trainhall.cluster.access.principal import How, Principal
from trainhall.cluster.accounts.attempt_tokens import IS_ACTIVE
from trainhall.cluster.accounts.reach import Reach, read_roles
from trainhall.cluster.accounts.secrets import is_token, sha256
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import ApiToken, LoginSession, User

log = structlog.get_logger(__name__)

MAX_CODE = 128
CACHE_SECONDS = 5.0
"""A credential is trusted for so long without another look-up; one that ends here ends at once."""
USE_SECONDS = 60.0
"""The last use of a credential is stored at most so often."""

_OF_TOKEN = (
    select(
        ApiToken.id, ApiToken.name, ApiToken.used_at, ApiToken.expires_at,
        ApiToken.job_id, User.id, User.name, User.is_admin,
        ApiToken.project, ApiToken.role, ApiToken.scopes,
    )
    .join(User, User.id == ApiToken.user_id)
    .where(
        ApiToken.sha256 == bindparam("sha256"), User.removed_at.is_(None),
        or_(ApiToken.job_id.is_(None), IS_ACTIVE),
    )
)  # fmt: skip
_OF_SESSION = (
    select(
        LoginSession.id, LoginSession.id, LoginSession.used_at, LoginSession.expires_at,
        null(), User.id, User.name, User.is_admin, null(), null(), null(),
    )
    .join(User, User.id == LoginSession.user_id)
    .where(LoginSession.sha256 == bindparam("sha256"), User.removed_at.is_(None))
)  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """A credential that was looked up."""

    principal: Principal
    until: float
    """Monotonic time until which that is trusted."""


_Key = tuple[How, str]
"""A credential: what it is, and its hash."""


@dataclass
class _Cache:
    known: dict[_Key, _Known] = field(default_factory=dict)
    """Only valid ones."""
    under_way: dict[_Key, asyncio.Task[Principal | None]] = field(default_factory=dict)
    """Look-ups, which all requests with that credential wait for."""
    version: int = 0
    """Changes when all are forgotten: what was read before is not kept."""


class CredentialLookup(Service):
    """Finds whose a credential is, and what it reaches."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._cache = _Cache()
        self._lookups: set[asyncio.Task[Principal | None]] = set()
        self._stored: set[asyncio.Task[None]] = set()
        """Last uses that are being stored."""

    async def stop(self) -> None:
        """Wait for look-ups that requests have left, and for what is being stored."""
        await asyncio.gather(*self._lookups, return_exceptions=True)
        await asyncio.gather(*self._stored)

    def forget_known(self) -> None:
        """Look every credential up again: users, roles or credentials have changed."""
        self._cache.known.clear()
        self._cache.under_way.clear()
        self._cache.version += 1

    async def of_token(self, token: str) -> Principal | None:
        """Return whose API token this is; None for one that is unknown or has expired."""
        return await self._principal(token, "token") if is_token(token) else None

    async def of_session(self, secret: str) -> Principal | None:
        """Return whose session this is; None for one that is unknown or has expired."""
        return await self._principal(secret, "session") if len(secret) <= MAX_CODE else None

    async def _principal(self, secret: str, how: How) -> Principal | None:
        key, cache = (how, sha256(secret)), self._cache
        known = cache.known.get(key)
        if known is not None and known.until > self._clock.monotonic():
            return known.principal
        cache.known.pop(key, None)
        task = cache.under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._look_up(key), name="look-up of a credential")
            cache.under_way[key] = task
            self._lookups.add(task)
            task.add_done_callback(partial(self._end_lookup, key))
        # A request that is cancelled ends it for none of the others.
        return await asyncio.shield(task)

    def _end_lookup(self, key: _Key, task: asyncio.Task[Principal | None]) -> None:
        self._lookups.discard(task)
        if self._cache.under_way.get(key) is task:
            del self._cache.under_way[key]
        if not task.cancelled():
            task.exception()  # else one that all requests have left is reported

    async def _look_up(self, key: _Key) -> Principal | None:
        (how, digest), cache = key, self._cache
        version = cache.version
        query = _OF_TOKEN if how == "token" else _OF_SESSION
        now = self._clock.now()
        async with self._db.session() as session:
            row = (await session.execute(query, {"sha256": digest})).first()
            if row is None or (row[3] is not None and row[3] <= now):
                return None
            credential_id, called, used_at, expires_at, job_id, user_id, name, is_admin = row[:8]
            reach = Reach(*row[8:])
            roles = await read_roles(session, user_id, is_admin, reach)
        principal = Principal(
            name, is_admin and reach.is_whole, how, user_id, credential_id, called,
            roles=roles, scopes=reach.scopes, is_narrowed=not reach.is_whole,
        )  # fmt: skip
        trusted = CACHE_SECONDS
        if expires_at is not None:
            trusted = min(trusted, (expires_at - now).total_seconds())
        # The token of an attempt ends with it, of which nobody tells.
        if version == cache.version and job_id is None:
            cache.known[key] = _Known(principal, self._clock.monotonic() + trusted)
        # A use in the future: the clock was set back.
        if used_at is None or not 0 <= (now - used_at).total_seconds() < USE_SECONDS:
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
