"""Common parts of every service of the coordinator."""

from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access import audit
from trainhall.cluster.access.limited import Limited
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import Clock, Ids
from trainhall.db.database import Database

T = TypeVar("T")


@dataclass(frozen=True)
class ServiceContext:
    db: Database
    clock: Clock
    ids: Ids
    options: ClusterOptions
    notifier: Notifier


class Service(Limited):
    def __init__(self, context: ServiceContext) -> None:
        self._db = context.db
        self._clock = context.clock
        self._ids = context.ids
        self._options = context.options
        self._notifier = context.notifier

    def _audit(
        self,
        session: AsyncSession,
        action: str,
        name: str,
        *,
        project: str | None = None,
        changes: audit.Changes | None = None,
        detail: str = "",
    ) -> None:
        """Add to the audit log what the caller changes in this transaction (`access.audit`)."""
        now = self._clock.now()
        audit.record(
            session, self._caller, action, now,
            name=name, project=project, changes=changes, detail=detail,
        )  # fmt: skip


async def load(session: AsyncSession, model: type[T], key: str, *, locked: bool = False) -> T:
    """Load a row by its id.

    Raises:
        NotFoundError: there is none.
    """
    row = await session.get(model, key, with_for_update=locked)
    if row is None:
        raise NotFoundError(model.__name__.lower(), key)
    return row
