"""Notifications of browsers: a numbered sequence that each browser follows from where it was."""

import asyncio
from collections.abc import AsyncGenerator

from sqlalchemy import ColumnElement, func, or_, select

from trainhall.cluster.access.owners import owner_sees
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.visibility import visible_or_none
from trainhall.cluster.alerts import views
from trainhall.cluster.alerts.messages import TITLES, page_of
from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.database import Database

_PAGE = 100


class BrowserFeed:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        """There is something new."""
        for event in self._waiting:
            event.set()

    async def newest(self) -> int:
        """Return the sequence of the newest notification; 0: there is none."""
        async with self._db.session() as session:
            return await session.scalar(select(func.max(AlertDelivery.sequence))) or 0

    async def follow(
        self, after: int, reader: Principal
    ) -> AsyncGenerator[views.Notification, None]:
        """Yield the notifications behind `after`, without end: those of the reader's own alerts, as
        far as they may still see what these are about; `SYSTEM` reads all."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                found = await self._read(after, reader)
                for notification in found:
                    yield notification
                    after = notification.sequence
                if not found:
                    await event.wait()
        finally:
            self._waiting.discard(event)

    async def _read(self, after: int, reader: Principal) -> list[views.Notification]:
        async with self._db.session() as session:
            result = await session.execute(
                select(AlertDelivery, Alert.name)
                .join(Alert, Alert.id == AlertDelivery.alert_id)
                .where(AlertDelivery.sequence > after, *_own(reader))
                .order_by(AlertDelivery.sequence)
                .limit(_PAGE)
            )
            rows = result.all()
        return [
            views.Notification.of(
                delivery,
                alert_name=name,
                title=TITLES[delivery.condition],
                path=page_of(delivery),
                time=delivery.created_at,
            )
            for delivery, name in rows
        ]


def _own(reader: Principal) -> list[ColumnElement[bool]]:
    if not reader.user:
        return []
    own = Alert.user == reader.user
    return [
        or_(own, Alert.user.is_(None)) if reader.is_admin else own,
        owner_sees(Alert.user, AlertDelivery.project),
        *visible_or_none(reader, AlertDelivery.project),
    ]
