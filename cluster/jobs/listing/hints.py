"""Hint for a query that finds nothing, as one with a typing error in a parameter's name."""

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.jobs.listing.fields import Names, names_of_newest, parse_field
from trainhall.cluster.jobs.listing.keys import AGGREGATES, METRICS, PARAMETERS, nearest
from trainhall.cluster.jobs.listing.query import parse_query


async def hint_of(
    session: AsyncSession, caller: Principal, query: str, me: str | None
) -> str | None:
    """Return which parameter or metric in a valid query no recent job has, with a similar one, or
    that none belongs to `me`; None: all of them are known.

    It reads the newest jobs that the caller sees alone, however many there are.
    """
    terms = [term for term in parse_query(query) if term.field and not term.negated]
    fields = [term.field.text for term in terms if term.field]
    named = [field for field in fields if field.startswith((PARAMETERS, METRICS))]
    is_mine = any(
        term.field and term.field.text == "user" and [v.text.lower() for v in term.values] == ["me"]
        for term in terms
    )
    if not named and not is_mine:
        return None
    found = await names_of_newest(session, caller)
    unknown = next((hint for field in named if (hint := _hint(field, found))), None)
    if unknown is None and is_mine and me is not None and me.lower() not in found.users:
        return (
            f"{_none(found)} belongs to {me}, whom user:me means here; name another user, as "
            "in user:maria."
        )
    return unknown


async def metric_hint(session: AsyncSession, caller: Principal, metric: str) -> str | None:
    """Return that no recent job has a metric, with a similar one; None: one has it, or there is no
    similar one, as of a new task."""
    found = await names_of_newest(session, caller)
    known = [each.removeprefix(METRICS) for each in found.names if each.startswith(METRICS)]
    near = nearest(metric, known)
    return f"{_none(found)} has a metric {metric}{near}" if metric not in known and near else None


def _hint(name: str, found: Names) -> str | None:
    field = parse_field(name)
    if field is None or name in found.names or _without_aggregate(name) in found.names:
        return None
    kind = "parameter" if field.parameter is not None else "metric"
    own = field.parameter if field.parameter is not None else field.metric
    prefix = PARAMETERS if field.parameter is not None else METRICS
    known = [each.removeprefix(prefix) for each in found.names if each.startswith(prefix)]
    return f"{_none(found)} has a {kind} {own}{nearest(own or '', known) or '.'}"


def _without_aggregate(name: str) -> str:
    metric, _, end = name.rpartition(".")
    return metric if name.startswith(METRICS) and end in AGGREGATES else name


def _none(found: Names) -> str:
    return "No job" if found.are_all else f"None of the newest {found.jobs} jobs"
