"""Sessions of browsers, whatever logged them in."""

from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access import audit
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.secrets import sha256
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.accounts import LoginSession, User
from trainhall.db.sanitize import sanitize_text

SESSION_LIFE = timedelta(days=30)
MAX_CLIENT = 256


async def add_session(
    session: AsyncSession,
    user: User,
    client: str,
    *,
    clock: Clock,
    ids: Ids,
    address: str = "",
    detail: str = "",
) -> str:
    """Log a browser in; return the secret for its cookie.

    Args:
        user: locked, so that a removal at the same time ends the session, too.
        client: the browser's description of itself.
        address: where it is.
        detail: how they logged in, for the audit log.
    """
    now = clock.now()
    new, secret = ids.new(), ids.secret()
    # Those that have ended leave with the next one.
    await session.execute(delete(LoginSession).where(LoginSession.expires_at <= now))
    session.add(
        LoginSession(
            id=new,
            sha256=sha256(secret),
            user_id=user.id,
            client=sanitize_text(client, MAX_CLIENT),
            created_at=now,
            used_at=now,
            expires_at=now + SESSION_LIFE,
        )
    )
    caller = Principal(user.name, user.is_admin, "session", user.id, new, new, address)
    audit.record(session, caller, "session.create", now, name=new, detail=detail)
    return secret
