"""The audit log: refusals, which are bounded, and what its readers see."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import structlog
from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.exc import DBAPIError

from trainhall.cluster import pagination
from trainhall.cluster.access import audit
from trainhall.cluster.access.networks import network_of
from trainhall.cluster.access.principal import Principal, who_gives_roles
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import of_present_project
from trainhall.cluster.accounts.users import visible_users
from trainhall.cluster.errors import ForbiddenError, NotFoundError
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import AuditEntry, User
from trainhall.db.database import run_to_end
from trainhall.db.views import Page, Time, View

log = structlog.get_logger(__name__)

MINUTE = 60.0
REFUSALS_PER_CALLER = 10
"""Refusals of one caller in a minute that get a row each; the others are counted."""
REFUSALS = 300
"""The same, of all users together; and again of all without a valid credential, so that they
displace none of a user."""
AGENT_SECONDS = 3600.0
"""Time in which an address has as many rows for refusals of agents: one whose credential has ended
tries again for days."""
COUNTED_CALLERS = 1000
"""Callers whose refusals are counted by name; the others together."""
GATHER_SECONDS = 0.1

ANOTHER_USER = "another user"
"""Name of a user in what others read, who do not see them."""

Outcome = Literal["done", "unauthenticated", "forbidden"]


class AuditRecord(View):
    """Change, or refusal, in the audit log."""

    id: int
    time: Time
    user: str | None
    """Null: the credential was not known. `another user`: one who was refused, and whom you do not
    see."""
    how: str
    """Credential: token, session, node (that of an agent), or none."""
    credential: str | None
    """Name of the API token, or id of the session or node."""
    address: str | None
    """Address that the request came from."""
    action: str
    """Kind of the object and what was done, such as `job.cancel`; `read` of a refused look."""
    kind: str | None
    """Kind of the object, such as `job`."""
    object: str | None
    """Its id or name; of a refused look, the path."""
    project: str | None
    outcome: Outcome
    """`done`, or why it was refused."""
    detail: str
    """In words; empty where the action says it all."""
    fields: dict[str, list[Any]] | None
    """Fields that changed, each `[before, after]`; secret values read `(hidden)`."""


class AuditPage(Page[AuditRecord]):
    """Rows of the audit log, the newest first."""


@dataclass(frozen=True)
class Refusal:
    """A request that was refused."""

    caller: Principal | None
    """None: the credential was not known."""
    address: str
    action: str
    name: str | None
    """Id or name of the object."""
    project: str | None
    outcome: Outcome
    detail: str
    is_agent: bool = False
    """True: of an agent, not of a user."""
    node: str | None = None
    """Id of the node whose credential it has; None: the credential was not known."""


@dataclass
class _Window:
    since: float
    written: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows, by user and network."""
    rows: Counter[bool] = field(default_factory=Counter)
    """Rows, by whether the user is known."""
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Refusals without a row."""


class AuditService(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        now = self._clock.monotonic()
        self._of_users = _Refusals(now, MINUTE)
        self._of_agents = _Refusals(now, AGENT_SECONDS)
        self._came = asyncio.Event()
        self._writing = asyncio.Lock()

    def refused(self, refusal: Refusal) -> None:
        """Keep a refusal, to be written soon: the answer does not wait for it, and so takes as long
        where there is something that the caller may not see as where there is nothing."""
        refusals = self._of_agents if refusal.is_agent else self._of_users
        refusals.add(refusal, self._clock.now(), self._clock.monotonic())
        self._came.set()

    async def run(self) -> None:
        """Write refusals as they come."""
        while True:
            await self._came.wait()
            self._came.clear()
            await asyncio.sleep(GATHER_SECONDS)
            await run_to_end(self.flush())

    async def stop(self) -> None:
        """Write what is still to be written."""
        await self._end_windows(early=True)

    async def _end_windows(self, *, early: bool = False) -> None:
        for refusals in (self._of_users, self._of_agents):
            refusals.end_window(self._clock.now(), self._clock.monotonic(), early=early)
        await self.flush()

    async def flush(self) -> None:
        """Write the refusals that have come."""
        async with self._writing:
            taken = [*self._of_users.take(), *self._of_agents.take()]
            if not taken:
                return
            try:
                async with self._db.transaction() as session:
                    session.add_all(taken)
            except DBAPIError as error:
                log.error("refusals_not_stored", count=len(taken), error=str(error.orig))

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        user: str | None = None,
        action: str | None = None,
        project: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AuditPage:
        """List what was changed and refused, the newest first.

        Args:
            action: the action, or the kind of object that it begins with.
            name: id or name of the object.

        Raises:
            ForbiddenError: the caller maintains no project, or not this one.
            NotFoundError: there is no such project that they see.
        """
        pagination.check_limit(limit)
        where = _readable(self._caller, project)
        if cursor is not None:
            where.append(AuditEntry.id < pagination.decode_number("audit", cursor))
        if action is not None:
            begins = AuditEntry.action.startswith(f"{action}.", autoescape=True)
            where.append(or_(AuditEntry.action == action, begins))
        equal = ((AuditEntry.user, user), (AuditEntry.project, project), (AuditEntry.object, name))
        where += [column == value for column, value in equal if value is not None]
        if user is not None:
            where += _named(self._caller)
        if since is not None:
            where.append(AuditEntry.time >= since)
        if until is not None:
            where.append(AuditEntry.time < until)
        await self.flush()
        query = select(AuditEntry).where(*where).order_by(AuditEntry.id.desc()).limit(limit + 1)
        async with self._db.session() as session:
            rows = (await session.scalars(query)).all()
            ids = [row.id for row in rows]
            of_these = (AuditEntry.id.in_(ids), *_named(self._caller))
            named = set(await session.scalars(select(AuditEntry.id).where(*of_these)))
        following = pagination.encode("audit", rows[limit - 1].id) if rows[limit:] else None
        items = [_record(row, is_named=row.id in named) for row in rows[:limit]]
        return AuditPage(items=items, next_cursor=following)

    async def housekeep(self) -> None:
        """Delete what is older than it is kept, and write how many refusals had no row."""
        await self._end_windows()
        before = self._clock.now() - timedelta(days=self._options.audit_days)
        async with self._db.transaction() as session:
            await session.execute(delete(AuditEntry).where(AuditEntry.time < before))


def _readable(caller: Principal, project: str | None) -> list[ColumnElement[bool]]:
    if caller.is_admin:
        return []
    managed = [name for name in sorted(caller.roles) if caller.may(Action.MANAGE, name)]
    if project is not None and not caller.may(Action.READ, project):
        raise NotFoundError("project", project)
    if not managed or (project is not None and project not in managed):
        role = "the role maintainer in "
        role += "a project" if project is None else f"project {project}"
        givers = who_gives_roles(project or "the project")
        raise ForbiddenError(f"to read the audit log takes {role}; {givers}")
    present = of_present_project(caller, AuditEntry.project, AuditEntry.time)
    return [AuditEntry.project.in_(managed), *present]


def _named(caller: Principal) -> list[ColumnElement[bool]]:
    """Return the conditions of rows that name their user: a refused stranger has no name for the
    maintainers of what they looked for."""
    if caller.is_admin:
        return []
    known = select(User.name).where(*visible_users(caller))
    is_known = or_(AuditEntry.user.is_(None), AuditEntry.user.in_(known))
    return [or_(AuditEntry.outcome == audit.DONE, is_known)]


def _record(row: AuditEntry, *, is_named: bool) -> AuditRecord:
    if is_named:
        return AuditRecord.of(row)
    return AuditRecord.of(row, user=ANOTHER_USER, credential=None, address=None)


class _Refusals:
    """Rows of refusals that are still to be written: so many of a caller within a time, and so many
    of all together; the others are counted, so that no flood of them fills the disk."""

    def __init__(self, now: float, seconds: float) -> None:
        self._seconds = seconds
        self._window = _Window(now)
        self._pending: list[AuditEntry] = []

    def add(self, refusal: Refusal, now: datetime, monotonic: float) -> None:
        self.end_window(now, monotonic)
        caller = refusal.caller
        key = (caller.user if caller is not None else "", network_of(refusal.address))
        window, is_known = self._window, caller is not None
        if window.written[key] >= REFUSALS_PER_CALLER or window.rows[is_known] >= REFUSALS:
            has_place = key in window.counted or len(window.counted) < COUNTED_CALLERS
            window.counted[key if has_place else ("", "")] += 1
            return
        window.written[key] += 1
        window.rows[is_known] += 1
        self._pending.append(_row(refusal, now))

    def end_window(self, now: datetime, monotonic: float, *, early: bool = False) -> None:
        """Once the time is over, or early, add what was only counted in it, and begin the next."""
        if not early and monotonic - self._window.since < self._seconds:
            return
        within = "a minute" if self._seconds == MINUTE else "an hour"
        for (user, address), count in self._window.counted.items():
            self._pending.append(
                _count(user, address, f"{count} more refusals within {within}", now)
            )
        self._window = _Window(monotonic)

    def take(self) -> Sequence[AuditEntry]:
        taken, self._pending = self._pending, []
        return taken


def _row(refusal: Refusal, now: datetime) -> AuditEntry:
    row = audit.entry(
        refusal.caller, refusal.action, now, refusal.name, refusal.project, refusal.outcome,
        refusal.detail,
    )  # fmt: skip
    row.address = refusal.address[:64] or None
    if refusal.node is not None:
        row.how, row.credential = "node", refusal.node
    return row


def _count(user: str, address: str, detail: str, now: datetime) -> AuditEntry:
    row = audit.entry(None, "refused", now, None, None, "forbidden", detail)
    row.user, row.address = user or None, address or None
    return row
