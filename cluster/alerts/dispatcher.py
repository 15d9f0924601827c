"""Delivery of stored messages: at least once, in their order, with pauses after failed tries."""

import asyncio
import functools
import random
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.owners import owner_sees
from trainhall.cluster.alerts.feed import BrowserFeed
from trainhall.cluster.alerts.targets import GONE, SendError, TargetKind
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.lifecycle.alerts import DISABLED, new_delivery
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.waiting import wait_until_set
from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.database import run_to_end

if TYPE_CHECKING:
    from trainhall.cluster.alerts.sending import Sender

log = structlog.get_logger(__name__)

WITHHELD = "not sent: the alert's owner may not see this any more"
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
FAILURE_LIMIT = timedelta(days=3)
"""Longest failure: then a message is not tried any more, and an alert is disabled."""
_AT_ONCE = 16
"""Messages on their way at a time, to as many alerts' targets."""
_MAX_ERROR = 500


class Dispatcher(Service):
    """Sends what is due. Of each alert one message is on its way at a time, so that a target that
    does not answer holds up no other."""

    def __init__(
        self,
        context: ServiceContext,
        feed: BrowserFeed,
        chance: random.Random | None = None,
    ) -> None:
        super().__init__(context)
        self._settings = context.options.alerts
        self._feed = feed
        self._chance = chance or random.Random()
        self._wanted = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Task[int | None]] = set()
        self._numbering = asyncio.Lock()
        """Held while a message to browsers takes the next number of their sequence."""
        self._is_stopping = False

    @cached_property
    def _sender(self) -> "Sender":
        # Where all alerts go to browsers, an HTTP client is not needed.
        from trainhall.cluster.alerts.sending import Sender

        return Sender(self._settings)

    def wake(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled; without alerts there is nothing to look for until `wake`."""
        try:
            while True:
                self._wanted.clear()
                any_alerts = True
                try:
                    any_alerts = await run_to_end(self._has_alerts())
                    await run_to_end(self._start_due())
                except DBAPIError as error:
                    log.error("alerts_not_read", error=str(error.orig))
                pause = self._settings.poll_seconds if any_alerts else None
                await wait_until_set(self._wanted, pause)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """Cancel what is being sent; what is being stored is stored."""
        self._is_stopping = True
        for sending in self._sending:
            sending.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def deliver_due(self) -> None:
        """Try every message that is due, once."""
        await self._start_due()
        await asyncio.gather(*self._busy.values())

    async def _has_alerts(self) -> bool:
        async with self._db.session() as session:
            return await session.scalar(select(Alert.id).limit(1)) is not None

    async def _start_due(self) -> None:
        async with self._db.session() as session:
            due = await session.scalars(
                select(AlertDelivery.alert_id)
                .where(
                    AlertDelivery.state == "pending",
                    AlertDelivery.next_try_at <= self._clock.now(),
                )
                .distinct()
            )
        for alert_id in due.all():
            if alert_id not in self._busy:
                task = asyncio.create_task(self._deliver(alert_id), name=f"alert {alert_id}")
                self._busy[alert_id] = task
                task.add_done_callback(functools.partial(self._ended, alert_id))

    def _ended(self, alert_id: str, task: asyncio.Task[None]) -> None:
        del self._busy[alert_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("alert_not_delivered", alert_id=alert_id, exc_info=error)

    async def _deliver(self, alert_id: str) -> None:
        """Send the due messages of an alert, until one fails."""
        try:
            async with self._slots:
                while not self._is_stopping and await self._deliver_next(alert_id):
                    pass
        except DBAPIError as error:
            log.error("alert_not_delivered", alert_id=alert_id, error=str(error.orig))

    async def _deliver_next(self, alert_id: str) -> bool:
        """Try the oldest due message; return whether it was accepted."""
        async with self._db.session() as session:
            alert = await session.get(Alert, alert_id)
            delivery = await session.scalar(
                select(AlertDelivery)
                .where(
                    AlertDelivery.alert_id == alert_id,
                    AlertDelivery.state == "pending",
                    AlertDelivery.next_try_at <= self._clock.now(),
                )
                .order_by(AlertDelivery.id)
                .limit(1)
            )
            is_seen = delivery is None or await session.scalar(
                select(owner_sees(Alert.user, AlertDelivery.project))
                .select_from(AlertDelivery)
                .join(Alert, Alert.id == AlertDelivery.alert_id)
                .where(AlertDelivery.id == delivery.id)
            )
        if alert is None or delivery is None or self._is_stopping:
            return False
        if not is_seen:
            await self._withhold(delivery)
            return True
        if alert.target_kind == TargetKind.BROWSER:
            await self._publish(delivery.id)
            return True
        if self._settings.simulated:
            await self._finish(delivery, "simulated", None)
            return True
        try:
            status = await self._send(alert, delivery)
        except SendError as error:
            await self._note_failure(alert, delivery, error)
            return False
        await self._finish(delivery, "delivered", status)
        return True

    async def _send(self, alert: Alert, delivery: AlertDelivery) -> int | None:
        """Send in a task of its own, which can be cancelled where no work on the database is."""
        sending = asyncio.create_task(self._sender.send(alert, delivery, self._clock.now()))
        self._sending.add(sending)
        try:
            return await sending
        finally:
            self._sending.discard(sending)

    async def _withhold(self, delivery: AlertDelivery) -> None:
        """End a message whose owner lost the role that let them see what it is about."""
        async with self._db.transaction() as session:
            await _change(
                session, delivery.id, state="failed", error=WITHHELD, next_try_at=None,
                finished_at=self._clock.now(),
            )  # fmt: skip

    async def _publish(self, delivery_id: int) -> None:
        """Hand a message to the browsers that listen, now and later."""
        now = self._clock.now()
        async with self._numbering, self._db.transaction() as session:
            newest = await session.scalar(select(func.max(AlertDelivery.sequence)))
            await _change(
                session, delivery_id, state="delivered", tries=1, next_try_at=None,
                finished_at=now, sequence=(newest or 0) + 1,
            )  # fmt: skip
        self._feed.wake()

    async def _finish(self, delivery: AlertDelivery, state: str, status: int | None) -> None:
        async with self._db.transaction() as session:
            await _change(
                session, delivery.id, state=state, status=status, error=None,
                tries=delivery.tries + 1, next_try_at=None, finished_at=self._clock.now(),
            )  # fmt: skip
            await session.execute(
                update(Alert)
                .where(Alert.id == delivery.alert_id, Alert.failing_since.is_not(None))
                .values(failing_since=None)
            )

    async def _note_failure(self, alert: Alert, delivery: AlertDelivery, error: SendError) -> None:
        now, tries = self._clock.now(), delivery.tries + 1
        since = alert.failing_since or now
        text = str(error)[:_MAX_ERROR]
        log.warning(
            "alert_delivery_failed", alert=alert.name, alert_id=alert.id, tries=tries, error=text
        )
        changes: dict[str, object] = {"tries": tries, "status": error.status, "error": text}
        async with self._db.transaction() as session:
            if error.status == GONE or now - since >= FAILURE_LIMIT:
                await self._disable(session, alert, delivery, changes, now)
                return
            if now - delivery.created_at >= FAILURE_LIMIT:
                changes |= {"state": "failed", "next_try_at": None, "finished_at": now}
            else:
                # Those behind it wait with it: they have the same target.
                later = now + timedelta(seconds=self._pause(tries))
                await session.execute(
                    update(AlertDelivery)
                    .where(
                        AlertDelivery.alert_id == alert.id,
                        AlertDelivery.state == "pending",
                        AlertDelivery.next_try_at < later,
                    )
                    .values(next_try_at=later)
                )
            await _change(session, delivery.id, **changes)
            await session.execute(
                update(Alert).where(Alert.id == alert.id).values(failing_since=since)
            )

    async def _disable(
        self,
        session: AsyncSession,
        alert: Alert,
        delivery: AlertDelivery,
        changes: dict[str, object],
        now: datetime,
    ) -> None:
        """Disable an alert whose target fails for good, and record that among its messages."""
        why = (
            "its target answered that it is gone"
            if changes["status"] == GONE
            else f"its target failed for {FAILURE_LIMIT.days} days"
        )
        reason = f"{why}: {changes['error']}"
        await _change(session, delivery.id, **changes)
        ended = {"state": "failed", "next_try_at": None, "finished_at": now}
        await session.execute(
            update(AlertDelivery)
            .where(AlertDelivery.alert_id == alert.id, AlertDelivery.state == "pending")
            .values(**ended)
        )
        await session.execute(
            update(Alert)
            .where(Alert.id == alert.id)
            .values(enabled=False, reason=reason, failing_since=None)
        )
        event = new_delivery(alert.id, DISABLED, f"disabled: {reason}", [], now)
        event.state, event.next_try_at, event.finished_at = "failed", None, now
        session.add(event)
        log.error("alert_disabled", alert=alert.name, alert_id=alert.id, reason=reason)

    def _pause(self, tries: int) -> float:
        """Seconds before the next try, as if one `Backoff` had counted all tries."""
        first = min(FIRST_PAUSE * 2.0 ** min(tries - 1, 32), LONGEST_PAUSE)
        return Backoff(first, LONGEST_PAUSE, self._chance).next()


async def _change(session: AsyncSession, delivery_id: int, **changes: object) -> None:
    await session.execute(
        update(AlertDelivery).where(AlertDelivery.id == delivery_id).values(**changes)
    )
