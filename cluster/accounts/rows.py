"""Rows of users as changes lock them: first all admins, if one may end to be one, then the user."""

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.accounts import ApiToken, User

_ADMINS = select(User.id).where(User.is_admin, User.removed_at.is_(None)).order_by(User.id)


async def lock_admins(session: AsyncSession) -> None:
    """Keep two admins from demoting each other; before any of them is locked for itself."""
    await session.execute(_ADMINS.with_for_update(key_share=True))


async def lock_user(session: AsyncSession, user_id: str) -> User | None:
    """Return a user, who is not removed before this transaction ends; None: they were removed."""
    query = select(User).where(User.id == user_id, User.removed_at.is_(None))
    locked = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return await session.scalar(locked)


async def demote(session: AsyncSession, user: User) -> bool:
    """Take the flag of an admin from a user; the admins are locked.

    Returns:
        False: they keep it, since nobody else has it.
    """
    if not set(await session.scalars(_ADMINS)) - {user.id}:
        return False
    # Only admins read the figures of the whole cluster.
    scoped = (ApiToken.user_id == user.id, ApiToken.scopes.is_not(None))
    await session.execute(delete(ApiToken).where(*scoped))
    user.is_admin = user.admin_by_provider = False
    return True
