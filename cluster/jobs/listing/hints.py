"""Hint for a query that finds nothing, as one with a typing error in a parameter's name."""

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.jobs.listing.fields import Names, names_of_newest, parse_field
from trainhall.cluster.jobs.listing.keys import AGGREGATES, METRICS, PARAMETERS, nearest
from trainhall.cluster.jobs.listing.query import parse_query


async def hint_of(session: AsyncSession, query: str) -> str | None:
    """Return which parameter or metric in a valid query no recent job has, and a similar one; None:
    all of them are known.

    It reads the newest jobs alone, however many there are.
    """
    fields = [term.field.text for term in parse_query(query) if term.field and not term.negated]
    fields = [field for field in fields if field.startswith((PARAMETERS, METRICS))]
    if not fields:
        return None
    found = await names_of_newest(session)
    return next((hint for field in fields if (hint := _hint(field, found))), None)


def _hint(name: str, found: Names) -> str | None:
    field = parse_field(name)
    if field is None or name in found.names or _without_aggregate(name) in found.names:
        return None
    kind = "parameter" if field.parameter is not None else "metric"
    own = field.parameter if field.parameter is not None else field.metric
    who = "No job has" if found.are_all else f"None of the newest {found.jobs} jobs has"
    prefix = PARAMETERS if field.parameter is not None else METRICS
    known = [each.removeprefix(prefix) for each in found.names if each.startswith(prefix)]
    return f"{who} a {kind} {own}{nearest(own or '', known) or '.'}"


def _without_aggregate(name: str) -> str:
    metric, _, end = name.rpartition(".")
    return metric if name.startswith(METRICS) and end in AGGREGATES else name
