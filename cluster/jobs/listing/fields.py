"""Fields of jobs in queries and sort keys, each with its SQL expression."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Select,
    Text,
    case,
    cast,
    column,
    exists,
    func,
    select,
    type_coerce,
)
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.visibility import of_visible_jobs, visible
from trainhall.cluster.jobs.listing.keys import (
    AGGREGATES,
    FIELDS,
    METRICS,
    PARAMETERS,
    TIME_FIELDS,
    nearest,
)
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.models import Attempt, Job, JobProgress
from trainhall.db.queries.json_values import HasKey, JsonItems, JsonNumber, JsonText
from trainhall.db.types import micros

_MICROS = 1_000_000.0
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_MAX_METRIC = 128
_NEWEST = 200
"""Jobs whose parameters and metrics are suggested in place of an unknown name."""

TEXTS: dict[str, ColumnElement[Any]] = {
    "name": Job.name.expression,
    "id": Job.id.expression,
    "state": Job.state.expression,
    "user": Job.user.expression,
    "project": Job.project.expression,
    "task": Job.task.expression,
    "strategy": Job.strategy.expression,
    "reason_code": Job.reason_code.expression,
    "experiment": Job.experiment_id.expression,
    "notes": Job.notes.expression,
    "archived": case((Job.archived, "yes"), else_="no"),
}
INTEGERS: dict[str, ColumnElement[Any]] = {
    "step": JobProgress.step.expression,
    "priority": Job.priority.expression,
    "world_size": Job.world_size.expression,
}
TIMES: dict[str, ColumnElement[Any]] = {
    "created_at": type_coerce(Job.created_at, BigInteger),
    "started_at": type_coerce(Job.started_at, BigInteger),
    "finished_at": type_coerce(Job.finished_at, BigInteger),
}
STATE_ORDER = case({state.value: i for i, state in enumerate(JobState)}, value=Job.state)


class FieldError(ValueError):
    """No such field; the message says which there are."""


@dataclass(frozen=True)
class Field:
    """Field of a job: exactly one of the built-in ones, a parameter or a metric."""

    name: str
    parameter: str | None = None
    metric: str | None = None
    aggregate: str | None = None
    """min or max of the metric; None: its latest value."""


def parse_field(name: str) -> Field | None:
    """Return a field by its full name; None if it can only be the short name of a parameter or
    metric.

    Raises:
        FieldError: no job can have it.
    """
    if name in FIELDS:
        return Field(name)
    if name.startswith(PARAMETERS):
        parameter = name.removeprefix(PARAMETERS)
        if not _PARAMETER.fullmatch(parameter):
            raise FieldError("is not a parameter; use parameters.NAME")
        return Field(name, parameter=parameter)
    if name.startswith(METRICS):
        metric = name.removeprefix(METRICS)
        if not 0 < len(metric) <= _MAX_METRIC or '"' in metric:
            raise FieldError("is not a metric; use metrics.NAME")
        return Field(name, metric=metric)
    return None


async def find_fields(session: AsyncSession, caller: Principal, name: str) -> Field:
    """Return the field of a full name, or the parameter or metric of a short name that a job has
    which the caller sees.

    Raises:
        FieldError: there is none.
    """
    field = parse_field(name)
    if field is not None:
        return await with_aggregate(session, caller, field)
    if _PARAMETER.fullmatch(name):
        has = (HasKey(Job.parameters, name), *visible(caller, Job.project))
        if await session.scalar(select(Job.number).where(*has).limit(1)) is not None:
            return Field(name, parameter=name)
    if len(name) <= _MAX_METRIC and '"' not in name:
        metric = await with_aggregate(session, caller, Field(name, metric=name))
        if metric.aggregate is not None or await _is_metric(session, caller, name):
            return metric
    known = [*FIELDS, *(await names_of_newest(session, caller)).names]
    short = [each.partition(".")[2] for each in known if "." in each]
    fields = f"; fields are {', '.join(FIELDS)}, parameters.NAME, metrics.NAME"
    near = nearest(name, [*known, *short])
    raise FieldError(f"is no field, parameter or metric{near or fields}")


async def with_aggregate(session: AsyncSession, caller: Principal, field: Field) -> Field:
    """Return the field of a metric's minimum or maximum, if its name means one: a metric may itself
    be called `top.max`."""
    metric, _, aggregate = (field.metric or "").rpartition(".")
    if not metric or aggregate not in AGGREGATES:
        return field
    if await _is_metric(session, caller, field.metric or ""):
        return field
    if not await _is_metric(session, caller, metric):
        return field
    return Field(field.name, metric=metric, aggregate=aggregate)


async def suggestion(session: AsyncSession, caller: Principal, name: str, known: list[str]) -> str:
    """Return the nearest of known names and of those of the newest jobs that the caller sees, to
    append to an error."""
    names = (await names_of_newest(session, caller)).names
    by_end = {each.partition(".")[2]: each for each in names}
    if name in by_end:
        return f"; did you mean {by_end[name]}?"
    return nearest(name, [*known, *names])


def number_of(field: Field, now: datetime) -> ColumnElement[Any] | None:
    """Return the number of a field as SQL; None if it has none."""
    if field.parameter is not None:
        return JsonNumber(Job.parameters, field.parameter)
    if field.aggregate is not None and field.metric is not None:
        item = AGGREGATES.index(field.aggregate)
        return JsonNumber(JobProgress.ranges, field.metric, item)
    if field.metric is not None:
        return JsonNumber(JobProgress.metrics, field.metric)
    if field.name == "duration":
        return _duration(now)
    if field.name == "gpu_hours":
        return _gpu_hours(now)
    return INTEGERS.get(field.name)


def text_of(field: Field) -> ColumnElement[Any] | None:
    """Return the text of a field as SQL; None if it has none."""
    if field.parameter is not None:
        return JsonText(Job.parameters, field.parameter)
    return TEXTS.get(field.name)


def tagged(tag: str) -> ColumnElement[bool]:
    """Return the condition that a job has a tag, in any case."""
    tags = JsonItems(Job.tags).table_valued(column("value", Text()))
    return exists().where(func.lower(tags.c.value) == func.lower(tag)).correlate(Job)


def is_time(field: Field) -> bool:
    return field.name in TIME_FIELDS


def _duration(now: datetime) -> ColumnElement[Any]:
    """Seconds of all attempts; NULL before the first."""
    started = type_coerce(Attempt.started_at, BigInteger)
    finished = func.coalesce(type_coerce(Attempt.finished_at, BigInteger), micros(now))
    # The time of day may have been set back meanwhile.
    ran = case((finished > started, finished - started), else_=0)
    return (
        select(cast(func.sum(ran), Double) / _MICROS)
        .where(Attempt.job_id == Job.id)
        .correlate(Job)
        .scalar_subquery()
    )


def _gpu_hours(now: datetime) -> ColumnElement[Any]:
    """GPUs times hours of all attempts; NULL before the first."""
    since = type_coerce(func.coalesce(Attempt.gpus_since, Attempt.started_at), BigInteger)
    finished = func.coalesce(type_coerce(Attempt.finished_at, BigInteger), micros(now))
    held = case((finished > since, finished - since), else_=0)
    micro_hours = _MICROS * 3600.0
    used = Attempt.gpu_seconds / 3600.0 + Attempt.gpus * cast(held, Double) / micro_hours
    return select(func.sum(used)).where(Attempt.job_id == Job.id).correlate(Job).scalar_subquery()


async def _is_metric(session: AsyncSession, caller: Principal, name: str) -> bool:
    has = (HasKey(JobProgress.metrics, name), *of_visible_jobs(caller, JobProgress.job_id))
    return await session.scalar(select(JobProgress.job_id).where(*has).limit(1)) is not None


@dataclass(frozen=True)
class Names:
    """Parameters and metrics of the newest jobs, by their full names, and their owners."""

    names: list[str]
    users: frozenset[str]
    """Owners in lower case, as queries compare them."""
    jobs: int
    """Number of jobs that were read."""
    are_all: bool
    """True if there are no other jobs."""


async def names_of_newest(session: AsyncSession, caller: Principal) -> Names:
    """Return the names that the newest jobs have which the caller sees, however many there are."""
    rows = (await session.execute(newest_statement(caller))).all()
    names: dict[str, None] = {}
    users = set()
    for parameters, metrics, user in rows:
        names |= dict.fromkeys(PARAMETERS + name for name in parameters or ())
        names |= dict.fromkeys(METRICS + name for name in metrics)
        users.add((user or "").lower())
    return Names(list(names), frozenset(users), len(rows), len(rows) < _NEWEST)


def newest_statement(caller: Principal) -> Select[Any, Any, Any]:
    """Return the statement that reads parameters, metrics and owners of the newest jobs that the
    caller sees."""
    return (
        select(Job.parameters, JobProgress.metrics, Job.user)
        .join(JobProgress, JobProgress.job_id == Job.id)
        .where(*visible(caller, Job.project))
        .order_by(Job.number.desc())
        .limit(_NEWEST)
    )
