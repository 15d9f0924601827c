"""Reading the ledger by job, user or project: sums over one narrow table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    cast,
    func,
    literal,
    or_,
    select,
)

from trainhall.cluster import pagination
from trainhall.cluster.access.visibility import of_present_project
from trainhall.cluster.csv_text import csv_text
from trainhall.cluster.errors import InvalidCursorError, InvalidValueError
from trainhall.cluster.ledger.views import Account, Ledger, LedgerRow, LedgerSums
from trainhall.cluster.options import Prices
from trainhall.cluster.service import Service
from trainhall.db.ledger import DIVIDED, LedgerEntry

DAYS = timedelta(days=30)
"""Time that is read if no beginning is given."""
_LIST = "ledger"
_HOUR = 3600.0
_DIGITS = 6
"""Digits after the point in CSV."""
_KWH = 3.6e6
"""Joules."""

_KEYS: dict[Account, tuple[Any, ...]] = {
    Account.JOB: (
        LedgerEntry.name, LedgerEntry.job_id, LedgerEntry.user, LedgerEntry.project,
    ),
    Account.USER: (LedgerEntry.user.label("name"),),
    Account.PROJECT: (LedgerEntry.project.label("name"),),
}  # fmt: skip
_HELD = func.coalesce(func.sum(LedgerEntry.held_seconds), 0.0)
_WHOLE = cast(_HELD, BigInteger())
"""Lines are ordered by whole seconds: the last digits of a sum differ from read to read."""
_FIRST_JOB = func.min(LedgerEntry.job_id)
_OPEN_JOB = func.min(case((LedgerEntry.is_open.is_(True), LedgerEntry.job_id)))
"""A running job of a line."""
_MOST_AHEAD = 600
"""Characters in a cursor for the running jobs of lines that follow."""
_SUMS = (
    func.count(LedgerEntry.job_id.distinct()).label("jobs"),
    _HELD.label("held"),
    func.coalesce(
        func.sum(case((LedgerEntry.device == "cuda", LedgerEntry.held_seconds), else_=0.0)), 0.0
    ).label("gpu"),
    func.sum(LedgerEntry.useful_seconds).label("useful"),
    func.sum(LedgerEntry.data_seconds).label("data"),
    func.sum(LedgerEntry.redone_seconds).label("redone"),
    func.sum(LedgerEntry.idle_seconds).label("idle"),
    func.coalesce(func.sum(LedgerEntry.held_seconds - DIVIDED), 0.0).label("not_measured"),
    func.coalesce(func.sum(LedgerEntry.metered_seconds), 0.0).label("metered"),
    func.coalesce(func.sum(LedgerEntry.energy_joules), 0.0).label("energy"),
)


@dataclass(frozen=True, kw_only=True)
class LedgerQuery:
    by: Account = Account.USER
    since: datetime | None = None
    until: datetime | None = None
    job_id: str | None = None


class LedgerService(Service):
    async def read(self, query: LedgerQuery, limit: int, cursor: str | None = None) -> Ledger:
        """Return a page of the attempts that ended in a time; without `until` also those that run.
        Those of projects that the caller may not see are not counted.

        Raises:
            InvalidCursorError: the cursor was not handed out by this list.
            InvalidValueError: the time ends before it begins, or is out of range.
        """
        after = _position(cursor) if cursor is not None else None
        # Each page sums up the time of the first one, else a line that shrinks would come again.
        begin = after.since if after else None
        since, until = self._times(replace(query, since=query.since or begin))
        conditions, prices = self._conditions(query, since, until), self._options.prices

        def load(connection: Connection) -> tuple[Sequence[Row[Any]], Row[Any], _Position | None]:
            rows = connection.execute(_page(query.by, conditions, after).limit(limit + 1)).all()
            following = None
            if len(rows) > limit:
                following = _following(connection, query.by, conditions, since, rows[:limit], after)
            total = connection.execute(select(*_SUMS).where(*conditions)).one()
            return rows, total, following

        rows, total, following = await self._db.read(load)
        return Ledger(
            by=query.by,
            since=since,
            until=until,
            currency=prices.currency if _has_price(prices) else None,
            items=[_row(row, prices) for row in rows[:limit]],
            next_cursor=_cursor(following) if following else None,
            total=LedgerSums(**_figures(total, prices)),
        )

    async def csv(self, query: LedgerQuery) -> str:
        """Return all lines as CSV; what is not measured is empty.

        Raises:
            InvalidValueError: the time ends before it begins, or is out of range.
        """
        rows = _rows(query.by, self._conditions(query, *self._times(query)))
        prices = self._options.prices

        def load(connection: Connection) -> str:
            # In this thread: a line for each of many jobs takes seconds.
            return csv_text(_lines(query.by, connection.execute(rows), prices))

        return await self._db.read(load)

    def _times(self, query: LedgerQuery) -> tuple[datetime, datetime | None]:
        until = _utc("until", query.until)
        end = until or self._clock.now()
        try:
            since = _utc("since", query.since) or end - DAYS
        except OverflowError:
            message = "is too early; give a later time"
            raise InvalidValueError("until", str(query.until), message) from None
        if since > end:
            message = f"must not be after until, {end.isoformat()}"
            raise InvalidValueError("since", since.isoformat(), message)
        return since, until

    def _conditions(
        self, query: LedgerQuery, since: datetime, until: datetime | None
    ) -> list[ColumnElement[bool]]:
        found = of_present_project(self._caller, LedgerEntry.project, LedgerEntry.counted_until)
        found.append(LedgerEntry.counted_until >= since)
        if until is not None:
            found.append(LedgerEntry.counted_until < until)
        if query.job_id is not None:
            found.append(LedgerEntry.job_id == query.job_id)
        return found


def _utc(name: str, time: datetime | None) -> datetime | None:
    try:
        return None if time is None else time.astimezone(UTC)
    except OverflowError:
        message = "is out of range; give a time in the years 1 to 9999 of UTC"
        raise InvalidValueError(name, str(time), message) from None


def _rows(by: Account, conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    keys = _KEYS[by]
    return (
        select(*keys, *_SUMS, _WHOLE.label("whole"), _FIRST_JOB.label("first_job"))
        .where(*conditions)
        .group_by(*keys)
        .order_by(_WHOLE.desc(), _FIRST_JOB)
    )


@dataclass(frozen=True)
class _Position:
    """The end of a page."""

    since: datetime
    whole: int
    """Whole seconds of its last line; those of the lines that follow were fewer."""
    first_job: str
    ahead: frozenset[str] = frozenset()
    """A running job of each line that followed: it may have grown beyond that end since."""


def _cursor(at: _Position) -> str:
    ahead = ",".join(sorted(at.ahead))
    return pagination.encode(_LIST, at.since.isoformat(), at.whole, at.first_job, ahead)


def _position(cursor: str) -> _Position:
    """Return the position in a cursor.

    Raises:
        InvalidCursorError: the cursor was not handed out by this list.
    """
    since, whole, first_job, ahead = pagination.decode(_LIST, cursor, str, int, str, str)
    try:
        begin = datetime.fromisoformat(str(since)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidCursorError from None
    jobs = frozenset(str(ahead).split(",")) if ahead else frozenset[str]()
    return _Position(begin, int(whole), str(first_job), jobs)


def _page(
    by: Account, conditions: Sequence[ColumnElement[bool]], after: _Position | None
) -> Select[Any]:
    """Select the lines that follow a position, those that have overtaken it since first."""
    if after is None:
        return _rows(by, conditions).add_columns(literal(None).label("ahead"))
    ahead = func.max(case((LedgerEntry.job_id.in_(after.ahead), LedgerEntry.job_id)))
    follows = or_(_after(after.whole, after.first_job), ahead.is_not(None))
    return _rows(by, conditions).add_columns(ahead.label("ahead")).having(follows)


def _following(
    connection: Connection,
    by: Account,
    conditions: Sequence[ColumnElement[bool]],
    since: datetime,
    rows: Sequence[Row[Any]],
    after: _Position | None,
) -> _Position:
    """Return the position behind a page of lines."""
    last, missing = rows[-1], frozenset[str]()
    whole, first_job = last.whole, last.first_job
    if after is not None:
        missing = after.ahead - {row.ahead for row in rows}
        # Lines that have overtaken it do not move the end back.
        if (-whole, first_job) < (-after.whole, after.first_job):
            whole, first_job = after.whole, after.first_job
    is_missing = func.max(case((LedgerEntry.job_id.in_(missing), 1), else_=0))
    running = connection.execute(
        _rows(by, conditions)
        .add_columns(_OPEN_JOB.label("open_job"))
        .having(_after(whole, first_job), _OPEN_JOB.is_not(None), is_missing == 0)
        .limit(_MOST_AHEAD)
    )
    ahead: list[str] = sorted(missing)
    for row in running:
        # The next ones are the first to overtake.
        if sum(map(len, ahead)) + len(ahead) + len(row.open_job) > _MOST_AHEAD:
            break
        ahead.append(row.open_job)
    return _Position(since, whole, first_job, frozenset(ahead))


def _after(whole: int, first_job: str) -> ColumnElement[bool]:
    """Select what follows a line, also if lines before it have grown since."""
    seconds = literal(whole)
    return or_(seconds > _WHOLE, and_(seconds == _WHOLE, literal(first_job) < _FIRST_JOB))


def _row(row: Row[Any], prices: Prices) -> LedgerRow:
    names = {name: getattr(row, name, None) for name in ("name", "job_id", "user", "project")}
    return LedgerRow(**names, **_figures(row, prices))


def _lines(by: Account, rows: Iterable[Row[Any]], prices: Prices) -> Iterator[list[Any]]:
    keys = [key.key for key in _KEYS[by]]
    currency = [prices.currency] if _has_price(prices) else []
    figures = [name for name in LedgerSums.model_fields if name != "cost" or currency]
    yield [by.value, *keys[1:], *figures, *(["currency"] if currency else [])]
    for row in rows:
        values = _figures(row, prices)
        # Digits beyond milliseconds only make a table hard to read.
        rounded = (v if v is None else round(v, _DIGITS) for v in map(values.get, figures))
        yield [*(getattr(row, key) for key in keys), *rounded, *currency]


def _figures(row: Row[Any], prices: Prices) -> dict[str, Any]:
    energy = row.energy / _KWH if row.metered > 0 else None
    return {
        "jobs": row.jobs,
        "device_hours": row.held / _HOUR,
        "gpu_hours": row.gpu / _HOUR,
        "useful_hours": _hours(row.useful),
        "data_hours": _hours(row.data),
        "redone_hours": _hours(row.redone),
        "idle_hours": _hours(row.idle),
        # The parts of an entry add up to what it held but for rounding.
        "not_measured_hours": max(0.0, round(row.not_measured / _HOUR, 9)),
        "energy_kwh": energy,
        "metered_hours": row.metered / _HOUR,
        "cost": _cost(row.gpu / _HOUR, (row.held - row.gpu) / _HOUR, energy, prices),
    }


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / _HOUR


def _has_price(prices: Prices) -> bool:
    return any(price is not None for price in (prices.gpu_hour, prices.cpu_hour, prices.kwh))


def _cost(
    gpu_hours: float, cpu_hours: float, energy_kwh: float | None, prices: Prices
) -> float | None:
    """Return the money for what is priced and measured; None: nothing is."""
    parts = [
        (gpu_hours, prices.gpu_hour),
        (cpu_hours, prices.cpu_hour),
        (energy_kwh, prices.kwh),
    ]
    known = [amount * price for amount, price in parts if amount is not None and price is not None]
    return sum(known) if known else None
