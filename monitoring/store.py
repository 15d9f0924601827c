"""Storing what ranks wrote, one job at a time, in the caller's transaction.

Locks are taken in one order, on Postgres, which is everybody's: a job's progress, then its attempts
(a new writer's row refers to one), then its writers; of several jobs in the order of their ids. So
two batches of a job wait for each other, and the order of the stream is the order of commits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from trainhall.arrays import Bools, Floats, Ints, np
from trainhall.db.ledger import LedgerEntry
from trainhall.db.models import (
    Attempt,
    Base,
    Checkpoint,
    Job,
    JobProgress,
    LogChunk,
    LogStream,
    MetricFrame,
    Writer,
)
from trainhall.db.sanitize import number_or_text
from trainhall.monitoring.codec import DIGESTS, Table, decode_payload, frame_headers
from trainhall.monitoring.errors import UnknownAttemptError
from trainhall.monitoring.lineage import OF_RUN, RUN_ATTEMPT, UNKNOWN, Origin, superseded_from
from trainhall.monitoring.lines import LOG_FULL, cut_lines, full_note, log_chunks
from trainhall.training.link.frames import TRACKING, Frame, encode_frame, encode_tables

LOSS = "loss"
MAX_LAST_VALUES = 1000
"""So many series show their last value with the job."""
Ranges = dict[str, list[float]]
"""Smallest and largest finite value by series."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Frames of one writer, parsed."""

    attempt: int
    origin: Origin
    writer: str
    """Empty: its frames have no numbers, and are all new."""
    body: bytes
    headers: list[Frame]
    tables: list[list[Table]]
    """By frame."""

    @classmethod
    def parse(cls, attempt: int, writer: str, body: bytes, origin: Origin = UNKNOWN) -> "Metrics":
        """Parse a run of whole frames; raise DamagedFrameError for anything else."""
        headers = frame_headers(body)
        tables = [list(decode_payload(body, h.payload, h.end)) for h in headers]
        return cls(attempt, origin, writer, body, headers, tables)


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of one output file of a rank, from `offset` on."""

    attempt: int
    rank: int
    stream: str
    offset: int
    data: bytes
    origin: Origin = UNKNOWN


Item = Metrics | Output


@dataclass(frozen=True, slots=True)
class Stored:
    """Result of storing an item."""

    acknowledged: int
    """The writer's newest stored sequence for metrics; the next offset for output, `LOG_FULL` when
    no more of it is stored."""
    points: int = 0
    log_bytes: int = 0
    first_step: int | None = None
    """The attempt's first step, if not reported yet."""
    losses: tuple[tuple[Ints, Floats], ...] = ()
    """Steps and values of the job's loss in it, if they are those of its newest attempt."""
    late: bool = False
    """True if it adds metrics to an attempt that has ended."""


@dataclass
class _Job:
    """The job's row of progress, locked, and what it becomes."""

    job_id: str
    now: datetime
    seq: int
    step: int
    metrics: dict[str, Any]
    ranges: Ranges
    newest_attempt: int
    log_bytes: int
    max_log_bytes: int
    is_run: bool
    changed: bool = False


def store(
    connection: Connection,
    job_id: str,
    items: Sequence[Item],
    now: datetime,
    max_log_bytes: int,
) -> list[Stored | UnknownAttemptError]:
    """Store the new data of the items of one job, in their order; returns one result per item.

    Repeated frames and bytes are skipped. Nothing of an item that leaves a gap is stored, and
    its result says where to resume. Of all output of the job `max_log_bytes` are stored, and a note
    behind them."""
    # The lock first: what a revocation that holds it says of the attempts has to be seen.
    job = _locked_progress(connection, job_id, now, max_log_bytes)
    attempts: dict[int, Any] = {
        row.number: row
        for row in connection.execute(
            _ATTEMPTS, {"at_job": job_id, "numbers": list({item.attempt for item in items})}
        )
    }
    if job is not None and job.is_run:
        attempts[RUN_ATTEMPT] = OF_RUN
    known = [item for item in items if item.attempt in attempts]
    if job is None or not known:
        return [UnknownAttemptError(job_id, item.attempt) for item in items]
    writers = _writers(connection, job_id, known)
    files = _files(connection, job_id, known)
    frames: list[dict[str, Any]] = []
    chunks: list[dict[str, Any]] = []
    answers: list[Stored | UnknownAttemptError] = []
    for item in items:
        attempt = attempts.get(item.attempt)
        if attempt is None:
            answers.append(UnknownAttemptError(job_id, item.attempt))
        elif isinstance(item, Metrics):
            answers.append(_add_metrics(job, item, attempt, writers, frames))
        else:
            answers.append(_add_output(job, item, attempt, files, chunks))
    if job.changed:
        _write(connection, job, writers, files, frames, chunks)
    return answers


_NEWEST_SAVED = (
    select(func.max(Checkpoint.step))
    .where(Checkpoint.job_id == Attempt.job_id, Checkpoint.attempt == Attempt.number)
    .correlate(Attempt)
    .scalar_subquery()
)
"""The newest save, whatever became of it since: an attempt that begins before it repeats steps."""

# Statements of every batch are built once: building one takes longer than SQLite takes to run it.
_ATTEMPTS = select(
    Attempt.number,
    Attempt.revoked,
    Attempt.first_step,
    Attempt.in_place,
    Attempt.finished_at,
    # Large, where there are many hosts, and of no use before the first regrouping.
    case((Attempt.generation > 1, Attempt.generations)).label("generations"),
    Attempt.began,
    case((Attempt.revoked, _NEWEST_SAVED)).label("saved_step"),
).where(
    Attempt.job_id == bindparam("at_job"),
    Attempt.number.in_(bindparam("numbers", expanding=True)),
)


def record_first_step(connection: Connection, job_id: str, attempt: int, step: int) -> None:
    """Record an attempt's first step, unless it has reported another one itself."""
    connection.execute(
        update(Attempt)
        .where(
            Attempt.job_id == job_id,
            Attempt.number == attempt,
            Attempt.first_step.is_(None),
        )
        .values(first_step=step)
    )


def reopen_entry(connection: Connection, job_id: str, attempt: int, now: datetime) -> None:
    """Open the ledger's entry of an attempt that has ended: its steps are divided again."""
    known = select(Attempt.number).where(Attempt.job_id == job_id, Attempt.number == attempt)
    connection.execute(
        update(LedgerEntry)
        .where(
            LedgerEntry.job_id == job_id,
            LedgerEntry.attempt == attempt,
            LedgerEntry.is_open.is_(False),
            known.exists(),
        )
        # All that it held and took is counted.
        .values(is_open=True, counted_until=now)
    )


def upsert(connection: Connection, table: type[Base], keys: Sequence[str]) -> Any:
    """Build an `INSERT`, or `UPDATE` of every other column for existing keys."""
    statement = _insert(connection, table)
    rest = [c.name for c in table.__table__.columns if c.name not in keys]
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={name: statement.excluded[name] for name in rest}
    )


def _insert(connection: Connection, table: type[Base]) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _writers(
    connection: Connection, job_id: str, items: Iterable[Item]
) -> dict[tuple[int, str], int]:
    """Return the newest sequence of each writer, its row locked."""
    wanted = sorted({(i.attempt, i.writer) for i in items if isinstance(i, Metrics) and i.writer})
    if not wanted:
        return {}
    found = _sequences(connection, job_id, wanted)
    missing = [key for key in wanted if key not in found]
    if missing:
        connection.execute(
            _insert(connection, Writer).on_conflict_do_nothing(),
            [{"job_id": job_id, "attempt": attempt, "name": name} for attempt, name in missing],
        )
        found = _sequences(connection, job_id, wanted)
    return found


_WRITERS = (
    select(Writer.attempt, Writer.name, Writer.metric_sequence)
    .where(
        Writer.job_id == bindparam("at_job"),
        tuple_(Writer.attempt, Writer.name).in_(bindparam("wanted", expanding=True)),
    )
    .order_by(Writer.attempt, Writer.name)
    .with_for_update()
)


def _sequences(
    connection: Connection, job_id: str, wanted: list[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    rows = connection.execute(_WRITERS, {"at_job": job_id, "wanted": wanted})
    return {(row.attempt, row.name): row.metric_sequence for row in rows}


_LOCKED_PROGRESS = (
    select(
        JobProgress.stream_seq,
        JobProgress.step,
        JobProgress.metrics,
        JobProgress.ranges,
        JobProgress.log_bytes,
        Job.attempt,
        Job.kind,
    )
    .join(Job, Job.id == JobProgress.job_id)
    .where(JobProgress.job_id == bindparam("at_job"))
    .with_for_update(of=JobProgress)
)


def _locked_progress(
    connection: Connection, job_id: str, now: datetime, max_log_bytes: int
) -> _Job | None:
    row = connection.execute(_LOCKED_PROGRESS, {"at_job": job_id}).one_or_none()
    if row is None:
        return None
    return _Job(
        job_id,
        now,
        row.stream_seq,
        row.step,
        row.metrics,
        row.ranges,
        row.attempt,
        row.log_bytes,
        max_log_bytes,
        is_run=row.kind == "run",
    )


_FILES = select(LogStream.__table__).where(
    LogStream.job_id == bindparam("at_job"),
    tuple_(LogStream.attempt, LogStream.rank, LogStream.stream).in_(
        bindparam("wanted", expanding=True)
    ),
)


def _files(
    connection: Connection, job_id: str, items: Iterable[Item]
) -> dict[tuple[int, int, str], dict[str, Any]]:
    wanted = {(i.attempt, i.rank, i.stream) for i in items if isinstance(i, Output)}
    if not wanted:
        return {}
    rows = connection.execute(_FILES, {"at_job": job_id, "wanted": list(wanted)}).mappings()
    found = {(row["attempt"], row["rank"], row["stream"]): dict(row) for row in rows}
    for attempt, rank, stream in wanted - found.keys():
        found[attempt, rank, stream] = {
            "job_id": job_id,
            "attempt": attempt,
            "rank": rank,
            "stream": stream,
            "length": 0,
            "sources": {},
            "newest_source": "",
            "carry": b"",
            "carry_at": None,
        }
    return found


def _add_metrics(
    job: _Job,
    item: Metrics,
    attempt: Any,
    writers: dict[tuple[int, str], int],
    rows: list[dict[str, Any]],
) -> Stored:
    key = item.attempt, item.writer
    stored = writers.get(key, 0)
    first_superseded = superseded_from(attempt, item.origin, attempt.saved_step)
    first_step = _first_step(item, first_superseded) if attempt.first_step is None else None
    # Sequences rise by one, so the new frames are the rest behind the stored ones.
    skip = stored + 1 - item.headers[0].sequence if item.headers and item.writer else 0
    if skip < 0 or skip >= len(item.headers):
        return Stored(stored, first_step=first_step)
    if item.writer:
        stored = writers[key] = item.headers[-1].sequence
    job.changed = True
    parts = _divided(item, skip, first_superseded)
    rows += [_frame_row(job, item.attempt, *part) for part in parts]
    points = sum(len(t.steps) * len(t.columns) for _, part, _ in parts for t in part)
    tables = [table for _, part, superseded in parts if not superseded for table in part]
    losses: tuple[tuple[Ints, Floats], ...] = ()
    if item.attempt == job.newest_attempt and tables and not attempt.revoked:
        _note_last_values(job, tables, attempt)
        losses = _losses(tables)
    late = attempt.finished_at is not None
    return Stored(stored, points, first_step=first_step, losses=losses, late=late)


def _losses(tables: Iterable[Table]) -> tuple[tuple[Ints, Floats], ...]:
    """Return the steps and values of the job's loss."""
    of_job = (table for table in tables if table.rank is None)
    return tuple((t.steps, t.columns[LOSS]) for t in of_job if LOSS in t.columns)


def _first_step(item: Metrics, first_superseded: int | None) -> int | None:
    """Return the earliest step of an item that counts; of what tracking clients log, and event
    files have, the first one.

    Scripts log numbers of an epoch there beside numbers of a step, under the epoch's number: as the
    earliest it would hide all that the attempts before have measured. So would step 0, which stands
    for none.
    """
    steps = [int(t.steps.min()) for tables in item.tables for t in tables if len(t.steps)]
    is_tracked = item.writer.startswith(TRACKING)
    if is_tracked:
        steps = [int(s) for parts in item.tables for t in parts for s in t.steps if s > 0]
    counted = (s for s in steps if first_superseded is None or s < first_superseded)
    return next(counted, None) if is_tracked else min(counted, default=None)


def _frame_row(
    job: _Job, attempt: int, payload: bytes, tables: list[Table], superseded: bool
) -> dict[str, Any]:
    job.seq += max(len(tables), 1)
    return {
        "job_id": job.job_id,
        "seq": job.seq,
        "attempt": attempt,
        "payload": payload,
        "tables": len(tables),
        "superseded": superseded,
        "packed": False,
    }


def _divided(
    item: Metrics, skip: int, first_superseded: int | None
) -> list[tuple[bytes, list[Table], bool]]:
    """Return an item's new data as it is stored: payload, its tables, and if superseded.

    Args:
        skip: so many of its frames are stored already.
        first_superseded: the first step from which they are superseded.
    """
    whole = item.body[item.headers[skip].start :]
    tables = [table for part in item.tables[skip:] for table in part]
    if first_superseded is None or not first_superseded:
        return [(whole, tables, first_superseded == 0)]
    superseded = [table.steps >= first_superseded for table in tables]
    if not any(each.any() for each in superseded):
        return [(whole, tables, False)]
    if all(each.all() for each in superseded):
        return [(whole, tables, True)]
    return [
        (*_only(item, skip, lambda steps: steps < first_superseded), False),
        (*_only(item, skip, lambda steps: steps >= first_superseded), True),
    ]


def _only(item: Metrics, skip: int, counts: Callable[[Ints], Bools]) -> tuple[bytes, list[Table]]:
    """Return an item's new frames with some of their steps alone."""
    payload, taken = b"", []
    for header, of_frame in zip(item.headers[skip:], item.tables[skip:], strict=True):
        cut = [_rows(table, counts(table.steps)) for table in of_frame]
        cut = [table for table in cut if len(table.steps)]
        payload += encode_frame(header.sequence, encode_tables([t.as_lists() for t in cut]))
        taken += cut
    return payload, taken


def _rows(table: Table, wanted: Bools) -> Table:
    columns = {name: values[wanted] for name, values in table.columns.items()}
    return Table(table.rank, table.steps[wanted], table.times[wanted], columns)


def _note_last_values(job: _Job, tables: list[Table], attempt: Any) -> None:
    """Note the last values and the step that tables of the job's newest attempt have."""
    step, last = _last_values(tables)
    if step is None:
        return
    merged = {**job.metrics, **last}
    # Ranks continue from their current step when they regroup in place. Rows that lost ranks ship
    # later still count, but are not the newest. Otherwise rank 0 alone reports the job's step, in
    # order, and it may be below that of an earlier attempt.
    regroups = attempt.in_place and attempt.generations is not None
    if job.is_run:
        # Its client may log in any order, and constants without a step.
        job.step = max(step, job.step)
    elif regroups and step < job.step:
        merged = {**last, **job.metrics}
    else:
        job.step = step
    job.metrics = dict(list(merged.items())[:MAX_LAST_VALUES])
    job.ranges = widened(job.ranges, tables)


def _last_values(tables: Iterable[Table]) -> tuple[int | None, dict[str, Any]]:
    """Return the highest step of job-wide values, and each metric's value at its highest one."""
    last: dict[str, Any] = {}
    steps: dict[str, int] = {}
    step: int | None = None
    for table in tables:
        if table.rank is None and len(table.steps):
            # A script may report an earlier step after a later one.
            row = len(table.steps) - 1 - int(np.argmax(table.steps[::-1]))
            at = int(table.steps[row])
            step = at if step is None else max(at, step)
            for name, values in table.columns.items():
                if name not in DIGESTS and at >= steps.get(name, 0):
                    steps[name], last[name] = at, number_or_text(float(values[row]))
    return step, last


def widened(ranges: Ranges, tables: Iterable[Table]) -> Ranges:
    """Return ranges that the job-wide values of tables are in, too."""
    found = dict(ranges)
    for table in tables:
        names = [name for name in table.columns if name not in DIGESTS]
        if table.rank is not None or not len(table.steps) or not names:
            continue
        # In one array, since a call of numpy takes as long as it does for hundreds of values.
        lows, highs = _finite_ends(np.stack([table.columns[name] for name in names]))
        for name, low, high in zip(names, lows.tolist(), highs.tolist(), strict=True):
            if name in found:
                found[name] = [min(low, found[name][0]), max(high, found[name][1])]
            elif low <= high and len(found) < MAX_LAST_VALUES:
                found[name] = [low, high]
    return found


def _finite_ends(values: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and largest finite value of each row; (∞, -∞) where there is none."""
    lows, highs = values.min(axis=1), values.max(axis=1)
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        finite = np.isfinite(values)
        lows = np.where(finite, values, np.inf).min(axis=1)
        highs = np.where(finite, values, -np.inf).max(axis=1)
    return lows, highs


def _add_output(
    job: _Job,
    item: Output,
    attempt: Any,
    files: dict[tuple[int, int, str], dict[str, Any]],
    rows: list[dict[str, Any]],
) -> Stored:
    file = files[item.attempt, item.rank, item.stream]
    source, length = item.origin.node_id or "", file["length"]
    taken = file["sources"].get(source)
    if taken is None:
        # A file begins at 0: a host that continues one has joined again since.
        taken = item.offset if item.offset <= length else 0
    fresh = item.data[taken - item.offset :] if item.offset <= taken else b""
    room = job.max_log_bytes - job.log_bytes
    if room <= 0:
        return Stored(LOG_FULL)
    if not fresh:
        return Stored(taken)
    fresh = fresh[:room]
    begun, added = file["carry"], []
    start = length - len(begun)
    if begun and source != file["newest_source"]:
        # Another host's file does not end this one's line.
        added = log_chunks(file, job.seq, start, begun, job.now, superseded=attempt.revoked)
        begun, start = b"", length
    whole, carry = cut_lines(begun + fresh)
    is_full = len(fresh) == room
    if is_full:
        whole, carry = full_note(begun + fresh, job.max_log_bytes), b""
    job.log_bytes += len(fresh)
    file.update(
        length=start + len(whole) + len(carry),
        sources={**file["sources"], source: taken + len(fresh)},
        newest_source=source,
        carry=carry,
        carry_at=job.now if carry else None,
    )
    job.changed = True
    superseded = superseded_from(attempt, item.origin) is not None
    added += log_chunks(file, job.seq + len(added), start, whole, job.now, superseded=superseded)
    job.seq += len(added)
    rows += added
    return Stored(LOG_FULL if is_full else taken + len(fresh), log_bytes=len(fresh))


def _write(
    connection: Connection,
    job: _Job,
    writers: dict[tuple[int, str], int],
    files: dict[tuple[int, int, str], dict[str, Any]],
    frames: list[dict[str, Any]],
    chunks: list[dict[str, Any]],
) -> None:
    if frames:
        connection.execute(MetricFrame.__table__.insert(), frames)  # type: ignore[attr-defined]
        if writers:
            connection.execute(
                _WRITER_UPDATE,
                [
                    {"of_job": job.job_id, "of_attempt": number, "of_name": name, "sequence": last}
                    for (number, name), last in writers.items()
                ],
            )
    if chunks:
        connection.execute(LogChunk.__table__.insert(), chunks)  # type: ignore[attr-defined]
    if files:
        keys = ("job_id", "attempt", "rank", "stream")
        connection.execute(upsert(connection, LogStream, keys), list(files.values()))
    connection.execute(
        _PROGRESS_UPDATE,
        {
            "of_job": job.job_id,
            "seq": job.seq,
            "at_step": job.step,
            "values": job.metrics,
            "ranges_of": job.ranges,
            "bytes_of_logs": job.log_bytes,
        },
    )


_PROGRESS_UPDATE = (
    update(JobProgress)
    .where(JobProgress.job_id == bindparam("of_job"))
    .values(
        stream_seq=bindparam("seq"),
        step=bindparam("at_step"),
        metrics=bindparam("values"),
        ranges=bindparam("ranges_of"),
        log_bytes=bindparam("bytes_of_logs"),
    )
)
_WRITER_UPDATE = (
    update(Writer)
    .where(
        Writer.job_id == bindparam("of_job"),
        Writer.attempt == bindparam("of_attempt"),
        Writer.name == bindparam("of_name"),
    )
    .values(metric_sequence=bindparam("sequence"))
)
