"""Positions of waiting jobs over time, sampled beside the reconciler's passes.

A job gets another row once its position has changed by a tenth: each move among the first ten is
stored, and further back only larger ones. So a start at the head of a long queue, which moves all
jobs, writes few rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.lifecycle.states import WAITING_STATES
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.order import queue_order
from trainhall.cluster.queue.views import QueueHistory, QueuePosition
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db import models as db

MOST_ROWS = 100
"""Rows of a job; of one that has more, the older ones are thinned out."""
MOST_CHANGES = 1_000
"""Jobs whose position is stored at once, the first in the queue; the others' turn comes next."""
MOST_SHOWN = 24
"""Positions of each job in a list of many jobs."""

_WAITING = select(db.Job.id, db.Job.number, db.Job.priority, db.Job.queued_at).where(
    db.Job.state.in_([state.value for state in WAITING_STATES])
)
_PRESENT = select(db.QueuePosition.job_id, db.QueuePosition.since, db.QueuePosition.position).where(
    db.QueuePosition.until.is_(None)
)
_FULL = (
    select(db.QueuePosition.job_id)
    .where(db.QueuePosition.job_id.in_(bindparam("jobs", expanding=True)))
    .group_by(db.QueuePosition.job_id)
    .having(func.count() > MOST_ROWS)
)
_ROW = (
    db.QueuePosition.job_id == bindparam("of_job"),
    db.QueuePosition.since == bindparam("from_time"),
)
_SET_END = update(db.QueuePosition).where(*_ROW).values(until=bindparam("end"))
_REMOVE = delete(db.QueuePosition).where(*_ROW)


class Span(NamedTuple):
    """Time in which a job had one position."""

    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class _Present:
    """The newest row of a job that waits."""

    since: datetime
    position: int


class QueueHistoryService(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._present: dict[str, _Present] | None = None
        """By job; None: to be loaded."""
        self._sampled_at = datetime.min.replace(tzinfo=UTC)

    async def sample(self) -> None:
        """Store the positions that have changed since the last sample."""
        if self._present is None:
            self._present = await self._db.read(_load_present)
        present = self._present
        positions = await self._db.read(lambda c: _load_positions(c, self._options))
        # Two rows of a job may not begin at the same time: the clock may have been set back.
        now = max(self._clock.now(), self._sampled_at + timedelta(microseconds=1))
        self._sampled_at = now
        changed = _changed(present, positions)
        if not changed:
            return
        begun = {job_id: positions[job_id] for job_id in changed if job_id in positions}
        ended = {job_id: present[job_id].since for job_id in changed if job_id in present}
        self._present = None  # after a failure it is not known what is stored
        try:
            await self._db.write(lambda c: _store(c, now, begun, ended))
        except IntegrityError:
            return  # a job was deleted meanwhile; the next sample knows
        for job_id in ended:
            del present[job_id]
        for job_id, position in begun.items():
            present[job_id] = _Present(now, position)
        self._present = present

    async def of_job(self, job_id: str) -> QueueHistory:
        """Return all stored positions of a job.

        Raises:
            NotFoundError: there is no such job.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            rows = await session.scalars(
                select(db.QueuePosition)
                .where(db.QueuePosition.job_id == job_id)
                .order_by(db.QueuePosition.since)
            )
            return QueueHistory(items=[QueuePosition.of(row) for row in rows])

    async def of_jobs(
        self, job_ids: Collection[str], since: datetime | None = None
    ) -> dict[str, list[QueuePosition]]:
        """Return some of the stored positions of each job, the first and the last among them.

        Args:
            since: only of those that have begun or ended since then.
        """
        # In a thread: of many jobs it takes a while.
        return await self._db.read(lambda c: _load_some(c, job_ids, since))


def _changed(present: Mapping[str, _Present], positions: Mapping[str, int]) -> list[str]:
    """Return the jobs to store: those that left the queue, and those that moved in it."""
    left = (job_id for job_id in present if job_id not in positions)
    moved = (
        job_id
        for job_id, position in positions.items()
        if job_id not in present or _has_moved(present[job_id].position, position)
    )
    return [*islice(left, MOST_CHANGES), *islice(moved, MOST_CHANGES)]


def _has_moved(before: int, position: int) -> bool:
    return 10 * abs(position - before) >= before


def _load_positions(connection: Connection, options: ClusterOptions) -> dict[str, int]:
    """Return the positions of all waiting jobs."""
    waiting = connection.execute(_WAITING).all()
    ordered = sorted(waiting, key=lambda row: queue_order(row, options))
    return {row.id: position for position, row in enumerate(ordered, start=1)}


def _load_some(
    connection: Connection, job_ids: Collection[str], since: datetime | None
) -> dict[str, list[QueuePosition]]:
    table = db.QueuePosition
    query = select(*table.__table__.columns).where(table.job_id.in_(job_ids))
    if since is not None:
        query = query.where(or_(table.since >= since, table.until >= since))
    rows = connection.execute(query.order_by(table.job_id, table.since))
    by_job = groupby(rows, key=attrgetter("job_id"))
    return {job_id: [*map(QueuePosition.of, _some([*of_job]))] for job_id, of_job in by_job}


def _load_present(connection: Connection) -> dict[str, _Present]:
    rows = connection.execute(_PRESENT)
    return {row.job_id: _Present(row.since, row.position) for row in rows}


def _store(
    connection: Connection, now: datetime, begun: Mapping[str, int], ended: Mapping[str, datetime]
) -> None:
    """Store new positions and the ends of others."""
    if ended:
        ends = [{"of_job": job_id, "from_time": t, "end": now} for job_id, t in ended.items()]
        connection.execute(_SET_END, ends)
    if begun:
        rows = [{"job_id": j, "since": now, "position": place} for j, place in begun.items()]
        connection.execute(insert(db.QueuePosition), rows)
        for job_id in connection.scalars(_FULL, {"jobs": list(begun)}).all():
            _thin_out(connection, job_id)


def _thin_out(connection: Connection, job_id: str) -> None:
    table = db.QueuePosition
    found = connection.execute(
        select(table.since, table.until).where(table.job_id == job_id).order_by(table.since)
    )
    rows = [Span(row.since, row.until) for row in found]
    kept = {row.since: row.until for row in thinned_out(rows)}
    removed = [{"of_job": job_id, "from_time": t} for t, _ in rows if t not in kept]
    connection.execute(_REMOVE, removed)
    joined = [
        {"of_job": job_id, "from_time": since, "end": kept[since]}
        for since, until in rows
        if since in kept and kept[since] != until
    ]
    if joined:
        connection.execute(_SET_END, joined)


def thinned_out(rows: Sequence[Span]) -> list[Span]:
    """Return fewer rows of a job: of the older half, those that follow each other without a gap are
    joined in pairs. If there are none, the oldest rows go: joined over a gap, a row would count a
    time in which the job did not wait."""
    half = len(rows) // 2
    older, newer = [*rows[:half]], rows[half:]
    joined: list[Span] = []
    while older:
        row = older.pop(0)
        if older and row.until == older[0].since:
            row = Span(row.since, older.pop(0).until)
        joined.append(row)
    return [*(joined if len(joined) < half else joined[half // 2 :]), *newer]


def _some(rows: Sequence[Any]) -> list[Any]:
    """Return evenly chosen ones of many rows."""
    if len(rows) <= MOST_SHOWN:
        return list(rows)
    step = (len(rows) - 1) / (MOST_SHOWN - 1)
    return [rows[round(step * each)] for each in range(MOST_SHOWN)]
