"""Loads the rows of an experiment: a fixed number of statements, however many runs it has."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, select

from trainhall.arrays import Floats, np
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.experiments.analysis.figures import (
    SERIES,
    SPEEDS,
    Distribution,
    after_warmup,
    distributions,
    speed_figures,
)
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, RunRow
from trainhall.cluster.experiments.analysis.surroundings import with_surroundings
from trainhall.cluster.experiments.spec import SPEED_KINDS, rungs_of
from trainhall.cluster.experiments.views import shown_state
from trainhall.cluster.lifecycle.reasons import ReasonCode
from trainhall.cluster.lifecycle.states import UNFINISHED_TRIALS, TrialState
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.ledger import LedgerEntry
from trainhall.db.models import Attempt, Job, JobProgress, MetricChunk, Series
from trainhall.monitoring.chunks import CHUNK, LEVELS, Run
from trainhall.training.spec.recovery import MetricMode

_MEMORY = "peak_memory_bytes"
_ROWS_AT_ONCE = 64
"""Each may have 40 KB of points."""


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment with its runs, at one moment."""

    experiment: ExperimentRow
    spec: Mapping[str, Any]
    """Its document."""
    rows: list[RunRow]
    """Its runs, in their order."""


@dataclass(frozen=True)
class _Speeds:
    """The steps of a job after its warm-up."""

    series: Mapping[str, Distribution]
    """By the metric's name."""
    attempts: tuple[int, ...]
    """Numbers of those that took the steps."""


_NOTHING = _Speeds({}, ())


def load_rows(connection: Connection, experiment_id: str, now: datetime) -> LoadedExperiment:
    """Load an experiment and its runs.

    Figures of speed are from the points that are packed, which those of a run are a few seconds
    after its end.

    Raises:
        NotFoundError: there is no such experiment.
    """
    columns = Experiment.__table__.c
    found = connection.execute(
        select(
            columns.id, columns.name, columns.kind, columns.state, columns.spec, columns.metric,
            columns.goal, columns.finished_at,
        ).where(columns.id == experiment_id)
    ).one_or_none()  # fmt: skip
    if found is None:
        raise NotFoundError("experiment", experiment_id)
    held = _held_seconds(connection, experiment_id, now)
    names = SERIES if found.kind in SPEED_KINDS else SPEEDS
    speeds = _speeds(connection, experiment_id, names, found.spec.get("warmup_steps", 0))
    rows = [
        _run(row, held.get(row.job_id, (None, 0.0)), speeds.get(row.job_id, _NOTHING))
        for row in connection.execute(_runs(experiment_id))
    ]
    if found.kind in SPEED_KINDS:
        rows = with_surroundings(connection, experiment_id, rows, now)
    experiment = ExperimentRow(
        id=found.id,
        name=found.name,
        kind=found.kind,
        state=found.state,
        is_finished=found.finished_at is not None,
        metric=found.metric,
        goal=MetricMode(found.goal),
        space=found.spec["space"],
        rungs=rungs_of(found.spec),
    )
    return LoadedExperiment(experiment, found.spec, rows)


def _runs(experiment_id: str) -> Select[Any]:
    return (
        select(
            Trial.number,
            Trial.repeat,
            Trial.values,
            Trial.state,
            Trial.reason,
            Trial.reason_code,
            Trial.job_id,
            Trial.objective,
            Trial.results,
            Job.state.label("job_state"),
            Job.reason.label("job_reason"),
            JobProgress.step,
            # Not the whole document, which may have a thousand metrics.
            JobProgress.metrics[_MEMORY].as_string().label("memory"),
            JobProgress.metrics["loss"].as_string().label("loss"),
        )
        .outerjoin(Job, Job.id == Trial.job_id)
        .outerjoin(JobProgress, JobProgress.job_id == Trial.job_id)
        .where(Trial.experiment_id == experiment_id)
        .order_by(Trial.number, Trial.repeat)
    )


def _run(row: Any, held: tuple[float | None, float], speeds: "_Speeds") -> RunRow:
    duration, device_seconds = held
    is_under_way = row.state in UNFINISHED_TRIALS and row.job_state is not None
    return RunRow(
        trial=row.number,
        repeat=row.repeat,
        values=row.values,
        state=shown_state(row.state, row.job_state),
        job_id=row.job_id,
        reason=row.job_reason if is_under_way else row.reason,
        # Before its end it has the objective of its last rung of early stopping.
        objective=row.objective if row.state == TrialState.COMPLETED else None,
        results=tuple(row.results),
        can_run=row.reason_code != ReasonCode.CANNOT_RUN,
        figures={
            **speed_figures(speeds.series),
            _MEMORY: _finite(row.memory),
            "final_loss": _finite(row.loss),
            "steps": row.step or None,
            "duration_seconds": duration,
        },
        device_seconds=device_seconds,
        measured_attempts=speeds.attempts,
    )


def _of_experiment(experiment_id: str) -> Select[Any]:
    return select(Trial.job_id).where(
        Trial.experiment_id == experiment_id, Trial.job_id.is_not(None)
    )


def _held_seconds(
    connection: Connection, experiment_id: str, now: datetime
) -> dict[str, tuple[float | None, float]]:
    """Return, by job, the seconds of its attempts, and the device-seconds that they held."""
    is_of_attempt = and_(
        LedgerEntry.job_id == Attempt.job_id, LedgerEntry.attempt == Attempt.number
    )
    query = (
        select(
            Attempt.job_id, Attempt.started_at, Attempt.finished_at, Attempt.world_size,
            LedgerEntry.held_seconds, LedgerEntry.counted_until,
        )
        .join(LedgerEntry, is_of_attempt)
        .where(Attempt.job_id.in_(_of_experiment(experiment_id)))
    )  # fmt: skip
    found: dict[str, tuple[float | None, float]] = {}
    for row in connection.execute(query):
        end = row.finished_at or now
        before, held = found.get(row.job_id, (None, 0.0))
        # The ledger counts twice a minute; since then only the newest generation held devices.
        since = row.world_size * _seconds(row.counted_until, end)
        found[row.job_id] = (
            (before or 0.0) + _seconds(row.started_at, end),
            held + row.held_seconds + since,
        )
    return found


def _seconds(start: datetime, end: datetime) -> float:
    # The time of day may have been set back meanwhile.
    return max(0.0, (end - start).total_seconds())


def _speeds(
    connection: Connection, experiment_id: str, names: Sequence[str], warmup: int
) -> dict[str, _Speeds]:
    """Return the values of each job's steps after its warm-up, by its id.

    Of a long series one chunk is read: of the lowest level at which one holds all of it, with every
    16th point, or every 256th, and so on. It is that of the job's longest attempt for all of them:
    else a short one would count as much as a long one.
    """
    is_read = (
        Series.job_id.in_(_of_experiment(experiment_id)),
        Series.rank == -1,
        Series.name.in_(names),
        Series.superseded.is_(False),
    )
    longest = (
        select(Series.job_id, Series.name, func.max(Series.points).label("points"))
        .where(*is_read)
        .group_by(Series.job_id, Series.name)
        .subquery()
    )
    level = case(
        *((longest.c.points <= CHUNK << lower, lower) for lower in (0, *LEVELS)), else_=LEVELS[-1]
    )
    query = (
        select(
            Series.job_id,
            Series.name,
            Series.attempt,
            MetricChunk.level,
            MetricChunk.count.label("entries"),
            MetricChunk.data,
            Attempt.first_step,
        )
        .join(Attempt, and_(Attempt.job_id == Series.job_id, Attempt.number == Series.attempt))
        .join(longest, and_(longest.c.job_id == Series.job_id, longest.c.name == Series.name))
        .join(
            MetricChunk,
            and_(
                MetricChunk.series_id == Series.id,
                MetricChunk.level == level,
                MetricChunk.index == 0,
            ),
        )
        .where(*is_read)
        .order_by(Series.job_id, Series.name, Series.attempt)
    )
    rows = connection.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})
    # The points of one job are in memory at a time.
    by_job = groupby(rows, key=attrgetter("job_id"))
    return {job_id: _speeds_of(group, warmup) for job_id, group in by_job}


def _speeds_of(rows: Iterable[Any], warmup: int) -> _Speeds:
    """Return a job's values after the warm-up of each attempt."""
    parts: dict[str, list[Floats]] = defaultdict(list)
    attempts = set()
    for row in rows:
        run = Run.unpack(row.level, row.entries, row.data)
        kept = after_warmup(run.steps, [row.first_step], warmup)
        parts[row.name].append(run.last[kept])
        if kept.any():
            attempts.add(row.attempt)
    series = {name: np.concatenate(values) for name, values in parts.items()}
    return _Speeds(distributions(series), tuple(sorted(attempts)))


def _finite(value: Any) -> float | None:
    number = float(value) if value is not None else math.nan
    return number if math.isfinite(number) else None
