"""The use of a database by one coordinator alone.

A second one would receive no heartbeat, and declare every node lost. The holder of the lease renews
it. A process that wants it watches by its own clock whether it is renewed, so that the clocks of
two hosts are never compared (as leader election in Kubernetes' client-go does).
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable

import structlog
from sqlalchemy import CursorResult, String, Text, delete, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.database import Database, is_read_only
from trainhall.db.models import Base
from trainhall.db.types import BigInt

log = structlog.get_logger(__name__)

RENEW_SECONDS = 5.0
EXPIRE_SECONDS = 20.0
"""A lease that was not renewed for so long is anybody's: its coordinator, or its host, is gone."""
RETRY_SECONDS = 1.0
"""After a renewal that failed."""
POLL_SECONDS = 0.1
RELEASE_SECONDS = 1.0

_ONE = 1


class CoordinatorLease(Base):
    """The coordinator that uses the database: one row."""

    __tablename__ = "coordinator_lease"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    holder: Mapped[str] = mapped_column(String(64))
    """Identity of its data folder."""
    token: Mapped[str] = mapped_column(String(64))
    """Identity of its process."""
    renewals: Mapped[int] = mapped_column(BigInt)
    location: Mapped[str] = mapped_column(Text)
    """For people: host and process."""


class LeaseLostError(Exception):
    """Loss of the lease, according to the database; this coordinator must end."""


class Lease:
    """One coordinator's claim to a database.

    Args:
        holder: of the data folder, which no two coordinators that live share. The lease of an
            earlier process with the same one is taken over at once.
        location: where this process runs, for people.
    """

    def __init__(self, db: Database, holder: str, location: str) -> None:
        self._db = db
        self._holder = holder
        self._location = location
        self._token = secrets.token_hex(16)
        self._written = False
        """True once it stood in the database."""

    async def take(self, patience: float, is_over: Callable[[], bool]) -> str | None:
        """Wait until the lease is ours.

        Where it can only be read, as on a full disk, and is no other's, it counts as ours: `keep`
        writes it once that is possible.

        Args:
            patience: seconds that another coordinator, which lives, may take to end.
            is_over: whether to stop waiting.

        Returns:
            None once it is ours; else the location of the coordinator that keeps it.

        Raises:
            SQLAlchemyError: the database cannot be read or is read-only, or it cannot be written
                and the lease is another's.
        """
        began = looked = since = time.monotonic()
        renewed = -math.inf
        seen: tuple[str, int] | None = None
        expired: tuple[str, int] | None = None
        while True:
            other = await self._try_acquire(expired)
            if other is None:
                return None
            now = time.monotonic()
            shown = (other.token, other.renewals)
            if seen is None:
                log.info("waiting_for_other_coordinator", process=other.location)
            elif shown != seen:
                renewed = now
            # Where this check hung, or this host slept, the holder may have been unable to renew.
            if shown != seen or now - looked > RENEW_SECONDS:
                seen, since = shown, now
            looked = now
            lives = now - renewed < 2 * RENEW_SECONDS
            if is_over() or (lives and now - began >= patience):
                return other.location
            expired = seen if now - since >= EXPIRE_SECONDS else None
            await asyncio.sleep(POLL_SECONDS)

    async def keep(self) -> None:
        """Renew it until cancelled.

        It stays ours while the database is unreachable for all. Where it is so for this
        coordinator alone, another may have it after `EXPIRE_SECONDS`.

        Raises:
            LeaseLostError: it is another's.
        """
        pause = RENEW_SECONDS if self._written else RETRY_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    other = await self._renewed()
            except (TimeoutError, SQLAlchemyError) as error:
                log.debug("lease_not_renewed", error=repr(error))
                pause = RETRY_SECONDS
                continue
            if other is not None:
                raise LeaseLostError(
                    "another coordinator uses the database now, or an older copy of it was "
                    f"restored: {other.location}"
                )
            pause = RENEW_SECONDS

    async def release(self) -> None:
        """Let the next one have it at once; without a database it will have to wait."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS), self._db.transaction() as session:
                await session.execute(
                    delete(CoordinatorLease).where(CoordinatorLease.token == self._token)
                )
        except (TimeoutError, SQLAlchemyError) as error:
            log.debug("lease_not_released", error=repr(error))

    async def _try_acquire(self, expired: tuple[str, int] | None) -> CoordinatorLease | None:
        """Return another's lease, if it does not count as ours."""
        try:
            return await self._acquire(expired)
        except SQLAlchemyError as error:
            if isinstance(error, DBAPIError) and is_read_only(error):
                raise
            async with self._db.session() as session:
                row = await session.get(CoordinatorLease, _ONE)
            if row is not None and row.holder != self._holder:
                raise
            cause = getattr(error, "orig", error)
            log.warning("lease_not_written", error=str(cause))
            return None

    async def _renewed(self) -> CoordinatorLease | None:
        """Return another's lease, if it is not ours."""
        async with self._db.transaction() as session:
            renewed = await session.execute(
                update(CoordinatorLease)
                .where(CoordinatorLease.token == self._token)
                .values(renewals=CoordinatorLease.renewals + 1)
            )
            assert isinstance(renewed, CursorResult)
            if renewed.rowcount == 1:
                self._written = True
                return None
        # A row that is absent is made again. Once ours was written, any other token is another's,
        # even an earlier one of this data folder, in an older copy of the database.
        return await self._acquire()

    async def _acquire(self, expired: tuple[str, int] | None = None) -> CoordinatorLease | None:
        """Make the lease ours if it is free, or, at first, of an earlier process like ours.

        Args:
            expired: or if it is still this token's, renewed so often.

        Returns:
            The lease of another coordinator, if one holds it.
        """
        try:
            async with self._db.transaction() as session:
                row = await session.get(CoordinatorLease, _ONE, with_for_update=True)
                if row is None:
                    row = CoordinatorLease(id=_ONE)
                    session.add(row)
                elif (row.token, row.renewals) != expired and (
                    self._written or row.holder != self._holder
                ):
                    return row
                row.holder, row.token, row.renewals = self._holder, self._token, 0
                row.location = self._location
        except IntegrityError:  # another was first to make the row
            return await self._acquire(expired)
        self._written = True
        return None
