"""Terms of a query as conditions in SQL."""

import operator
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Select,
    and_,
    false,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.durations import parse_duration
from trainhall.cluster.jobs.listing.fields import (
    TIMES,
    Field,
    FieldError,
    find_fields,
    is_time,
    number_of,
    tagged,
    text_of,
)
from trainhall.cluster.jobs.listing.keys import NO, nearest
from trainhall.cluster.jobs.listing.query import Operator, QueryError, Term, Text
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.experiments import Experiment
from trainhall.db.models import Job
from trainhall.db.types import micros

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DAY = timedelta(days=1) - timedelta(microseconds=1)
_COMPARE: dict[Operator, Callable[[Any, Any], ColumnElement[bool]]] = {
    Operator.HAS: operator.eq,
    Operator.EQUALS: operator.eq,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.GREATER: operator.gt,
    Operator.AT_LEAST: operator.ge,
}
_EQUAL = (Operator.HAS, Operator.EQUALS)


def matching(text: str) -> ColumnElement[bool]:
    """Return the condition that a name has a text in it, in any case, or an id begins with it."""
    named = Job.name.icontains(text, autoescape=True)
    return named | Job.id.startswith(text.lower(), autoescape=True)


async def conditions_of(
    session: AsyncSession, caller: Principal, terms: Iterable[Term], now: datetime
) -> list[ColumnElement[bool]]:
    """Return a condition for each term.

    Args:
        caller: only parameters and metrics of jobs that they see are fields.

    Raises:
        QueryError: of a field that does not exist, or a value that it cannot have.
    """
    return [await _condition(session, caller, term, now) for term in terms]


def states_of(terms: Iterable[Term]) -> frozenset[str] | None:
    """Return the states that the terms leave; None: all of them."""
    found: frozenset[str] | None = None
    for term in terms:
        if term.field is not None and term.field.text == "state" and not term.negated:
            states = frozenset(value.text.lower() for value in term.values)
            found = states if found is None else found & states
    return found


async def _condition(
    session: AsyncSession, caller: Principal, term: Term, now: datetime
) -> ColumnElement[bool]:
    if term.field is None:
        condition = or_(*(matching(value.text) for value in term.values))
    elif term.field.text == NO and term.operator in _EQUAL:
        fields = [await _field(session, caller, value) for value in term.values]
        condition = or_(*(_missing(field, now) for field in fields))
    else:
        field = await _field(session, caller, term.field)
        condition = or_(*(_comparison(field, term, value, now) for value in term.values))
    # Jobs without a value match the negation.
    return not_(func.coalesce(condition, false())) if term.negated else condition


async def _field(session: AsyncSession, caller: Principal, name: Text) -> Field:
    try:
        return await find_fields(session, caller, name.text)
    except FieldError as error:
        raise QueryError(name.position, f"{name.text!r} {error}") from None


def _missing(field: Field, now: datetime) -> ColumnElement[bool]:
    """Return the condition that a job has no value of a field."""
    if field.name == "tag":
        return Job.tags.is_(None)
    if is_time(field):
        return TIMES[field.name].is_(None)
    values = (number_of(field, now), text_of(field))
    return and_(*(value.is_(None) for value in values if value is not None))


def _comparison(field: Field, term: Term, value: Text, now: datetime) -> ColumnElement[bool]:
    if field.name == "tag" and term.operator in _EQUAL:
        return tagged(value.text)
    if is_time(field):
        return _at_time(TIMES[field.name], term.operator, value)
    number, text = number_of(field, now), text_of(field)
    options: list[ColumnElement[bool]] = []
    if number is not None:
        parse = _seconds if field.name == "duration" else _number
        amount = parse(value, required=text is None or term.operator not in _EQUAL)
        if amount is not None:
            # As a float in any case: 3.5 steps are no integer, which Postgres would round to.
            options.append(_COMPARE[term.operator](number, literal(amount, Double())))
    elif term.operator not in _EQUAL:
        raise QueryError(value.position, f"expected {field.name}:VALUE; {field.name} is text")
    if text is not None and term.operator in _EQUAL:
        options.append(_same_text(field, text, term.operator, value))
    return or_(*options)


def _same_text(
    field: Field, text: ColumnElement[Any], operator: Operator, value: Text
) -> ColumnElement[bool]:
    if field.name == "state":
        return text == _state(value)
    if field.name == "archived":
        return Job.archived.is_(_truth(value))
    if field.name == "experiment":
        return text.in_(_experiments(operator, value.text))
    if operator is Operator.HAS and field.name in ("name", "notes"):
        return text.icontains(value.text, autoescape=True)
    if operator is Operator.HAS and field.name == "id":
        return text.startswith(value.text.lower(), autoescape=True)
    return func.lower(text) == func.lower(value.text)


def _experiments(operator: Operator, text: str) -> Select[str]:
    """Select the ids of experiments by name or id, as jobs are."""
    if operator is Operator.HAS:
        found = Experiment.name.icontains(text, autoescape=True)
        found |= Experiment.id.startswith(text.lower(), autoescape=True)
    else:
        found = (func.lower(Experiment.name) == func.lower(text)) | (Experiment.id == text.lower())
    return select(Experiment.id).where(found)


def _state(value: Text) -> str:
    state, known = value.text.lower(), [state.value for state in JobState]
    if state not in known:
        raise QueryError(
            value.position, f"expected a state: {', '.join(known)}{nearest(state, known)}"
        )
    return state


def _truth(value: Text) -> bool:
    answers = {"yes": True, "no": False}
    if value.text.lower() not in answers:
        raise QueryError(value.position, "expected yes or no, or yes,no for all jobs")
    return answers[value.text.lower()]


def _number(value: Text, *, required: bool) -> float | None:
    number = float(value.text) if _NUMBER.fullmatch(value.text) else None
    if number is not None and abs(number) != float("inf"):
        return number
    if required:
        raise QueryError(value.position, "expected a number")
    return None


def _seconds(value: Text, *, required: bool) -> float | None:
    try:
        seconds = parse_duration(value.text)
    except ValueError:
        seconds = float("inf")
    if seconds == float("inf"):
        raise QueryError(value.position, "expected a duration, such as 90s, 10m, 2h or 3d")
    return seconds


def _at_time(column: ColumnElement[Any], operator: Operator, value: Text) -> ColumnElement[bool]:
    """Compare with a time, or with a day in UTC: its begin, or for `=` any time of it."""
    start, length = _time(value)
    first = literal(micros(start), BigInteger())
    last = literal(micros(start) + length // timedelta(microseconds=1), BigInteger())
    if operator in _EQUAL:
        return and_(column >= first, column <= last)
    # A day as a whole: `<= DAY` ends with it, `> DAY` begins after it.
    end = last if operator in (Operator.AT_MOST, Operator.GREATER) else first
    return _COMPARE[operator](column, end)


def _time(value: Text) -> tuple[datetime, timedelta]:
    """Return the first moment that a text means, and the time until the last."""
    text = value.text
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise QueryError(
            value.position, "expected a day or time, such as 2026-11-26 or 2026-11-26T14:30Z"
        ) from None
    return found, _DAY if _is_day(text) else timedelta()


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
