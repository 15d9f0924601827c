"""Upkeep of the ledger: open entries grow with the time, and are divided now and then."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    select,
    update,
)
from sqlalchemy.orm import aliased

from trainhall.arrays import Ints, np
from trainhall.cluster.ledger.spans import Reading, Span, energy_of, held_seconds, spans_of
from trainhall.cluster.ledger.split import Split, Steps, split
from trainhall.cluster.service import Service
from trainhall.db.database import Database
from trainhall.db.ledger import DIVIDED, LedgerEntry
from trainhall.db.models import Attempt, DeviceReading, Job
from trainhall.monitoring.devices import SECONDS
from trainhall.monitoring.points import Points, read_points

LAG = timedelta(seconds=10)
"""Age from which time is counted: younger device readings may not be stored yet."""
LATE = timedelta(seconds=60)
"""Time in which the last metrics and device readings of an ended attempt come."""
CLOSED_AT_ONCE = 100
"""Most entries that are closed in one pass."""
GROWTH = 1.2
"""An attempt that runs is divided when it holds so many times as much as when it last was: the
steps of a long one are read a few times, not in every pass."""
MAX_GAP = 1.5 * SECONDS
"""Seconds between two device readings; after a longer gap a reading covers only its own time."""
_POWER = 4
"""Place of the power among the numbers of a device, `[index, …, power]`."""
_STEP, _DATA = "step_seconds", "data_seconds"

_ATTEMPT = (
    LedgerEntry.job_id,
    LedgerEntry.attempt,
    LedgerEntry.device,
    LedgerEntry.held_seconds,
    LedgerEntry.metered_seconds,
    LedgerEntry.energy_joules,
    LedgerEntry.counted_until,
    Attempt.started_at,
    Attempt.running_at,
    Attempt.finished_at,
    Attempt.allocation,
    case((Attempt.generation > 1, Attempt.generations)).label("generations"),
    Job.task,
)
_WITH_ATTEMPT = (
    select(*_ATTEMPT)
    .join(
        Attempt,
        and_(Attempt.job_id == LedgerEntry.job_id, Attempt.number == LedgerEntry.attempt),
    )
    .join(Job, Job.id == LedgerEntry.job_id)
)
_KEY = (
    LedgerEntry.job_id == bindparam("at_job"),
    LedgerEntry.attempt == bindparam("at_attempt"),
    # Its job may have been deleted since it was read.
    LedgerEntry.counted_until == bindparam("at_counted_until"),
)


class LedgerKeeper(Service):
    """Each pass continues where the one before ended, whoever ran it."""

    async def keep(self) -> None:
        """Count up to the present; divide what has ended, or was redone since."""
        now = self._clock.now()
        if grown := await self._db.read(lambda connection: _grown(connection, now - LAG)):
            await self._db.write(lambda connection: _store(connection, grown))
        if divided := await self._db.read(lambda connection: _divided(connection, now)):
            await self._db.write(lambda connection: _store(connection, divided))
        await self._db.write(_close_deleted)


async def divide_entries(database: Database, job_id: str, now: datetime) -> None:
    """Count, divide and close the open entries of a job whose attempts have ended, without the
    time for their last metrics: it is about to be deleted."""
    of_job = LedgerEntry.job_id == job_id
    if grown := await database.read(lambda connection: _grown(connection, now, of_job)):
        await database.write(lambda connection: _store(connection, grown))
    ended = _WITH_ATTEMPT.where(
        of_job, LedgerEntry.is_open.is_(True), Attempt.finished_at.is_not(None)
    )
    if parts := await database.read(lambda connection: _parts(connection, ended)):
        await database.write(lambda connection: _store(connection, parts))


def close_entries(connection: Connection, job_id: str, now: datetime) -> None:
    """Count and close the open entries of a job that has ended, before its attempts are deleted.

    They stay as they were last divided (`divide_entries`): in one transaction with the deletion
    there is no time for the points of its steps.
    """
    if grown := _grown(connection, now, LedgerEntry.job_id == job_id):
        _store(connection, grown)
    of_attempt = and_(Attempt.job_id == LedgerEntry.job_id, Attempt.number == LedgerEntry.attempt)
    end = select(Attempt.finished_at).where(of_attempt).scalar_subquery()
    connection.execute(
        update(LedgerEntry)
        .where(LedgerEntry.job_id == job_id, LedgerEntry.is_open.is_(True))
        .values(is_open=False, counted_until=func.coalesce(end, LedgerEntry.counted_until))
    )


def _store(connection: Connection, changes: Sequence[Mapping[str, Any]]) -> None:
    columns = [name for name in changes[0] if not name.startswith("at_")]
    connection.execute(
        update(LedgerEntry).where(*_KEY).values({name: bindparam(name) for name in columns}),
        list(changes),
    )


def _close_deleted(connection: Connection) -> None:
    """Close the entries of deleted jobs as they are."""
    attempt = select(Attempt.number).where(
        Attempt.job_id == LedgerEntry.job_id, Attempt.number == LedgerEntry.attempt
    )
    connection.execute(
        update(LedgerEntry)
        .where(LedgerEntry.is_open.is_(True), ~attempt.exists())
        .values(is_open=False)
    )


def _key(row: Any) -> dict[str, Any]:
    return {
        "at_job": row.job_id,
        "at_attempt": row.attempt,
        "at_counted_until": row.counted_until,
    }


def _grown(
    connection: Connection, now: datetime, *wanted: ColumnElement[bool]
) -> list[dict[str, Any]]:
    """Return open entries with what was held and taken since they were last counted."""
    # A condition on the time would lead SQLite to the index of all entries.
    found = connection.execute(_WITH_ATTEMPT.where(LedgerEntry.is_open.is_(True), *wanted))
    rows = [row for row in found if row.counted_until < now]
    spans = [_spans(row, now) for row in rows]
    readings = _readings(connection, rows, spans, now)
    changes = []
    for row, held in zip(rows, spans, strict=True):
        since = row.counted_until.timestamp()
        joules, metered = energy_of(held, readings, since)
        changes.append(
            {
                **_key(row),
                "counted_until": now,
                "held_seconds": row.held_seconds + held_seconds(held, since, now.timestamp()),
                "metered_seconds": row.metered_seconds + metered,
                "energy_joules": row.energy_joules + joules,
            }
        )
    return changes


def _spans(row: Any, now: datetime) -> tuple[Span, ...]:
    return spans_of(row.started_at, row.finished_at or now, row.allocation, row.generations)


def _readings(
    connection: Connection, rows: Sequence[Any], spans: Iterable[Sequence[Span]], now: datetime
) -> dict[str, list[Reading]]:
    """Return the readings of nodes whose GPUs are held, since the oldest entry was counted."""
    found: dict[str, list[Reading]] = defaultdict(list)
    with_gpus = [(row, held) for row, held in zip(rows, spans, strict=True) if row.device == "cuda"]
    if not with_gpus:
        return found
    nodes = {node_id for _, held in with_gpus for span in held for node_id, _ in span.devices}
    # One earlier says from when on the first one was measured.
    since = min(row.counted_until for row, _ in with_gpus) - timedelta(seconds=MAX_GAP)
    of_nodes = connection.execute(
        select(DeviceReading.node_id, DeviceReading.time, DeviceReading.devices)
        .where(
            DeviceReading.node_id.in_(nodes),
            DeviceReading.time > since,
            DeviceReading.time <= now,
        )
        .order_by(DeviceReading.node_id, DeviceReading.time)
    )
    for node_id, time, devices in of_nodes:
        end, before = time.timestamp(), found[node_id][-1:]
        gap = end - before[0].end if before else SECONDS
        start = end - (gap if gap <= MAX_GAP else SECONDS)
        watts = {each[0]: each[_POWER] for each in devices if each[_POWER] is not None}
        found[node_id].append(Reading(start, end, watts))
    return found


def _divided(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """Return the parts of attempts that ended a while ago, run, or whose steps were redone."""
    ended = (
        _WITH_ATTEMPT.where(LedgerEntry.is_open.is_(True), Attempt.finished_at < now - LATE - LAG)
        .order_by(LedgerEntry.job_id, LedgerEntry.attempt)
        .limit(CLOSED_AT_ONCE)
    )
    running = _WITH_ATTEMPT.where(
        LedgerEntry.is_open.is_(True),
        Attempt.running_at.is_not(None),
        Attempt.finished_at.is_(None),
        LedgerEntry.held_seconds > GROWTH * DIVIDED,
    )
    return _parts(connection, ended, running, _redone())


def _parts(connection: Connection, *wanted: Select[Any]) -> list[dict[str, Any]]:
    changes = []
    for row in [row for query in wanted for row in connection.execute(query)]:
        parts = _split(connection, row)
        changes.append(
            {
                **_key(row),
                "is_open": row.finished_at is None,
                "counted_until": row.finished_at or row.counted_until,
                "useful_seconds": parts.useful if parts else None,
                "redone_seconds": parts.redone if parts else None,
                "data_seconds": parts.data if parts else None,
                "idle_seconds": parts.idle if parts else None,
                "last_step": parts.last_step if parts else None,
            }
        )
    return changes


def _redone() -> Select[Any]:
    """Select closed entries of steps that an attempt with an open entry has taken again."""
    later, attempt = aliased(LedgerEntry), aliased(Attempt)
    taken_again = (
        select(later.job_id)
        .join(attempt, and_(attempt.job_id == later.job_id, attempt.number == later.attempt))
        .where(
            later.is_open.is_(True),
            later.job_id == LedgerEntry.job_id,
            later.attempt > LedgerEntry.attempt,
            attempt.first_step <= LedgerEntry.last_step,
        )
        .correlate(LedgerEntry)
    )
    jobs = select(later.job_id).where(later.is_open.is_(True))
    return _WITH_ATTEMPT.where(
        LedgerEntry.job_id.in_(jobs), LedgerEntry.is_open.is_(False), taken_again.exists()
    )


def _split(connection: Connection, row: Any) -> Split | None:
    """Return the parts of what an attempt held; None: they are not measured."""
    points = read_points(connection, row.job_id, row.attempt, (_STEP, _DATA))
    superseded = points.get((_STEP, True), Points.empty())
    seconds = points.get((_STEP, False), Points.empty())
    steps = np.concatenate([seconds.steps, superseded.steps])
    # Tasks report every step; a script may take some that nobody hears of.
    if row.task is None and row.running_at is not None and not _consecutive(steps):
        return None
    data = points.get((_DATA, False)) if len(steps) else Points.empty()
    redone_from = connection.scalar(
        select(func.min(Attempt.first_step)).where(
            Attempt.job_id == row.job_id, Attempt.number > row.attempt
        )
    )
    spans = _spans(row, row.counted_until)
    return split(row.held_seconds, spans, Steps(seconds, data, superseded), redone_from)


def _consecutive(steps: Ints) -> bool:
    """Return whether steps follow each other, or go back; one alone does not say."""
    return len(steps) > 1 and int(np.diff(steps).max()) <= 1
