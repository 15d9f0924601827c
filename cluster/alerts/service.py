"""Alerts as users see them: create, read, change, delete, test, and the log of their deliveries."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.audit import Changes
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import (
    check_job,
    of_visible_jobs,
    visible,
    visible_or_none,
)
from trainhall.cluster.accounts.reach import Reach, read_roles
from trainhall.cluster.alerts import views
from trainhall.cluster.alerts.dispatcher import Dispatcher
from trainhall.cluster.alerts.monitor import AlertMonitor
from trainhall.cluster.alerts.targets import Target, TargetKind, check_target, new_secret
from trainhall.cluster.errors import (
    ConflictError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
)
from trainhall.cluster.lifecycle.alerts import TEST, Condition, new_delivery
from trainhall.cluster.lifecycle.reasons import A_USER
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.alerts import Alert, AlertDelivery, AlertFiring
from trainhall.db.models import Job

MAX_ALERTS = 1000
"""Alerts of all users."""
MAX_OWN_ALERTS = 100
"""Alerts of one user, who is no admin: so that no user has all of them."""
KEPT = timedelta(days=30)
"""Finished deliveries are kept for so long."""
_OF_NODES = (Condition.NODE_DOWN, Condition.DISK_FILLING)


@dataclass(frozen=True)
class Scope:
    kind: views.ScopeKind = "cluster"
    value: str | None = None


@dataclass(frozen=True, kw_only=True)
class Definition:
    """All of an alert that users choose."""

    name: str
    on: tuple[Condition, ...]
    target: Target
    scope: Scope = field(default_factory=Scope)
    waiting_seconds: float = 3600.0
    disk_percent: float = 90.0
    enabled: bool = True


class AlertService(Service):
    def __init__(
        self, context: ServiceContext, dispatcher: Dispatcher, monitor: AlertMonitor
    ) -> None:
        super().__init__(context)
        self._settings = context.options.alerts
        self._dispatcher = dispatcher
        self._monitor = monitor
        self._creating = asyncio.Lock()
        """Held while an alert takes the next number."""

    async def create(self, wanted: Definition) -> views.AlertWithSecret:
        """Create an alert. It reports what happens from now on, and what holds already.

        Raises:
            ConflictError: there are too many.
            ForbiddenError: its scope is beyond what the caller sees.
            InvalidValueError: a part of it does not fit the others, or this coordinator.
        """
        check_target(wanted.target, self._settings)
        async with self._creating, self._db.transaction() as session:
            await self._check_scope(session, wanted)
            await self._check_number(session)
            newest = await session.scalar(select(func.max(Alert.number)))
            alert = Alert(
                id=self._ids.new(),
                number=(newest or 0) + 1,
                user=self._caller.user or None,
                reason="",
                created_at=self._clock.now(),
                **_columns(wanted),
            )
            if wanted.target.kind is TargetKind.WEBHOOK:
                alert.secret = new_secret(self._ids)
            session.add(alert)
            self._note(session, "alert.create", alert)
            await session.flush()
            view = views.alert_with_secret(alert, alert.secret)
        self._wake()
        return view

    async def _check_number(self, session: AsyncSession) -> None:
        """Check that there may be another alert.

        Raises:
            ConflictError: there are too many, or the caller has too many.
        """
        counted = select(func.count()).select_from(Alert)
        own = counted.where(Alert.user == self._caller.user)
        if not self._caller.is_admin and (await session.scalar(own) or 0) >= MAX_OWN_ALERTS:
            raise ConflictError(f"you have {MAX_OWN_ALERTS} alerts already; delete some first")
        if (await session.scalar(counted) or 0) >= MAX_ALERTS:
            raise ConflictError(f"there are {MAX_ALERTS} alerts already; delete some first")

    async def get(self, alert_id: str) -> views.Alert:
        async with self._db.session() as session:
            return views.alert_view(await self._load(session, alert_id))

    async def _load(self, session: AsyncSession, alert_id: str, *, locked: bool = False) -> Alert:
        """Load an alert of the caller's; an admin's are all.

        Raises:
            NotFoundError: there is none.
        """
        query = select(Alert).where(Alert.id == alert_id, *_own(self._caller))
        alert = await session.scalar(query.with_for_update() if locked else query)
        if alert is None:
            raise NotFoundError("alert", alert_id)
        return alert

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> views.AlertPage:
        """List the caller's alerts, and an admin all, the oldest first."""
        pagination.check_limit(limit)
        query = select(Alert).where(*_own(self._caller)).order_by(Alert.number).limit(limit + 1)
        if cursor is not None:
            query = query.where(Alert.number > pagination.decode_number("alerts", cursor))
        async with self._db.session() as session:
            rows = (await session.scalars(query)).all()
        following = pagination.encode("alerts", rows[limit - 1].number) if rows[limit:] else None
        items = [views.alert_view(row) for row in rows[:limit]]
        return views.AlertPage(items=items, next_cursor=following)

    async def change(self, alert_id: str, changes: dict[str, Any]) -> views.AlertWithSecret:
        """Change parts of an alert; one that is enabled starts as if its target had never failed.

        Args:
            changes: fields of `Definition` to replace.

        Raises:
            ForbiddenError: its scope is beyond what the caller sees.
            InvalidValueError: a part of it does not fit the others, or this coordinator.
        """
        async with self._db.transaction() as session:
            alert = await self._load(session, alert_id, locked=True)
            before = _definition(alert)
            wanted = replace(before, **changes)
            if "target" in changes:
                check_target(wanted.target, self._settings)
            if changes.keys() - {"name", "enabled"}:
                await self._check_scope(session, wanted)
            secret = None
            if wanted.target.kind is TargetKind.WEBHOOK and alert.secret is None:
                secret = alert.secret = new_secret(self._ids)
            for name, value in _columns(wanted).items():
                setattr(alert, name, value)
            if wanted.enabled:
                alert.reason, alert.failing_since = "", None
            elif not alert.reason:
                alert.reason = f"disabled by {self._caller.named or A_USER}"
            old, new = _columns(before), _columns(wanted)
            changed = {name: (old[name], new[name]) for name in old}
            self._note(session, "alert.change", alert, changed)
            await self._forget_withdrawn(session, alert)
            await session.flush()
            view = views.alert_with_secret(alert, secret)
        self._wake()
        return view

    async def _forget_withdrawn(self, session: AsyncSession, alert: Alert) -> None:
        """Forget what was reported of conditions that the alert does not report any more."""
        still = alert.on if alert.enabled else []
        await session.execute(
            delete(AlertFiring).where(
                AlertFiring.alert_id == alert.id, AlertFiring.condition.not_in(still)
            )
        )

    async def delete(self, alert_id: str) -> None:
        """Delete an alert with its deliveries; what was not sent is not sent any more."""
        async with self._db.transaction() as session:
            alert = await self._load(session, alert_id, locked=True)
            self._note(session, "alert.delete", alert)
            await session.delete(alert)

    async def test(self, alert_id: str) -> views.Delivery:
        """Send a message that says that it is a test, also of a disabled alert."""
        async with self._db.transaction() as session:
            alert = await self._load(session, alert_id)
            text = f"this is a test of the alert “{alert.name}”"
            delivery = new_delivery(alert_id, TEST, text, [], self._clock.now())
            session.add(delivery)
            self._note(session, "alert.test", alert)
            await session.flush()
            view = views.delivery_view(delivery)
        self._dispatcher.wake()
        return view

    async def deliveries(
        self, alert_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> views.DeliveryPage:
        """List an alert's messages, the newest first."""
        pagination.check_limit(limit)
        query = (
            select(AlertDelivery)
            .where(
                AlertDelivery.alert_id == alert_id,
                *visible_or_none(self._caller, AlertDelivery.project),
            )
            .order_by(AlertDelivery.id.desc())
            .limit(limit + 1)
        )
        if cursor is not None:
            query = query.where(AlertDelivery.id < pagination.decode_number("deliveries", cursor))
        async with self._db.session() as session:
            await self._load(session, alert_id)
            rows = (await session.scalars(query)).all()
        following = pagination.encode("deliveries", rows[limit - 1].id) if rows[limit:] else None
        items = [views.delivery_view(row) for row in rows[:limit]]
        return views.DeliveryPage(items=items, next_cursor=following)

    async def housekeep(self) -> None:
        """Delete what was finished long ago."""
        before = self._clock.now() - KEPT
        async with self._db.transaction() as session:
            await session.execute(delete(AlertDelivery).where(AlertDelivery.finished_at < before))

    async def _check_scope(self, session: AsyncSession, wanted: Definition) -> None:
        """Check that a scope fits its conditions, and that the caller sees what is in it."""
        await _check_scope(session, wanted)
        scope, caller = wanted.scope, self._caller
        if scope.kind == "cluster":
            caller.check_admin("have alerts about the whole cluster")
        elif scope.kind == "project" and not caller.may(Action.READ, scope.value or ""):
            message = f"there is no project {scope.value!r} that you see"
            raise InvalidValueError("scope.value", scope.value, message)
        elif scope.kind == "job":
            try:
                await check_job(session, caller, scope.value or "")
            except NotFoundError:
                raise _no_job(scope.value) from None
        if scope.kind == "user" and not caller.is_admin:
            # Messages are for the user, whose roles may be more than this credential's.
            roles = await read_roles(session, caller.user_id, False, Reach(None, None, None))
            if roles.keys() - caller.roles.keys():
                raise ForbiddenError(
                    "an alert about a user's jobs in all projects takes a token that is not "
                    "narrowed; name a project or a job instead"
                )

    def _note(
        self, session: AsyncSession, action: str, alert: Alert, changes: Changes | None = None
    ) -> None:
        """Add to the audit log what the caller does to an alert."""
        project = alert.scope_value if alert.scope_kind == "project" else None
        self._audit(session, action, alert.id, project=project, changes=changes, detail=alert.name)

    def _wake(self) -> None:
        self._monitor.wake()
        self._dispatcher.wake()


def _own(caller: Principal) -> list[ColumnElement[bool]]:
    """Return the conditions under which alerts are a caller's: of a user's, a narrowed token has
    those of one project or job that it reaches."""
    if caller.is_admin:
        return []
    own = Alert.user == caller.user
    if not caller.is_narrowed:
        return [own]
    of_project = and_(Alert.scope_kind == "project", *visible(caller, Alert.scope_value))
    of_job = and_(Alert.scope_kind == "job", *of_visible_jobs(caller, Alert.scope_value))
    return [own, or_(of_project, of_job)]


async def _check_scope(session: AsyncSession, wanted: Definition) -> None:
    scope = wanted.scope
    if scope.kind == "cluster":
        if scope.value is not None:
            raise InvalidValueError(
                "scope.value", scope.value, "must be left out: the scope is the whole cluster"
            )
        return
    if not scope.value:
        what = "id" if scope.kind == "job" else "name"
        raise InvalidValueError(
            "scope.value", scope.value, f"is required: the {what} of the {scope.kind}"
        )
    if scope.kind == "job" and await session.get(Job, scope.value) is None:
        raise _no_job(scope.value)
    unfit = [each.value for each in wanted.on if each in _OF_NODES]
    if scope.kind == "job" and Condition.QUOTA_REACHED in wanted.on:
        unfit.append(Condition.QUOTA_REACHED.value)
    if unfit:
        raise InvalidValueError(
            "scope.kind", scope.kind, f"does not fit {', '.join(unfit)}, which no {scope.kind} "
            "has; leave out the scope, or make an alert of its own",
        )  # fmt: skip


def _no_job(job_id: str | None) -> InvalidValueError:
    return InvalidValueError("scope.value", job_id, "there is no such job; give its id")


def _definition(alert: Alert) -> Definition:
    scope = views.AlertScope.model_validate({"kind": alert.scope_kind, "value": alert.scope_value})
    return Definition(
        name=alert.name,
        on=tuple(map(Condition, alert.on)),
        target=Target(TargetKind(alert.target_kind), alert.target_url),
        scope=Scope(scope.kind, scope.value),
        waiting_seconds=alert.waiting_seconds,
        disk_percent=alert.disk_percent,
        enabled=alert.enabled,
    )


def _columns(wanted: Definition) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "on": list(dict.fromkeys(each.value for each in wanted.on)),
        "scope_kind": wanted.scope.kind,
        "scope_value": wanted.scope.value,
        "waiting_seconds": wanted.waiting_seconds,
        "disk_percent": wanted.disk_percent,
        "target_kind": wanted.target.kind.value,
        "target_url": wanted.target.url,
        "enabled": wanted.enabled,
    }
