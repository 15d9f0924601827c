"""Sessions of browsers, whatever logged them in."""

from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.accounts.secrets import sha256
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.accounts import LoginSession
from trainhall.db.sanitize import sanitize_text

SESSION_LIFE = timedelta(days=30)
MAX_CLIENT = 256


async def add_session(
    session: AsyncSession, user_id: str, client: str, *, clock: Clock, ids: Ids
) -> str:
    """Log a browser in; return the secret for its cookie.

    Args:
        client: the browser's description of itself.
    """
    now = clock.now()
    secret = ids.secret()
    # Those that have ended leave with the next one.
    await session.execute(delete(LoginSession).where(LoginSession.expires_at <= now))
    session.add(
        LoginSession(
            id=ids.new(),
            sha256=sha256(secret),
            user_id=user_id,
            client=sanitize_text(client, MAX_CLIENT),
            created_at=now,
            used_at=now,
            expires_at=now + SESSION_LIFE,
        )
    )
    return secret
