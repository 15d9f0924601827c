"""Numbers of jobs by the values of a field."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, column, false, func, null, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.jobs.listing.keys import GroupKey
from trainhall.cluster.jobs.listing.pages import PageRequest, read_filters, with_progress
from trainhall.db.experiments import Experiment
from trainhall.db.models import Job
from trainhall.db.queries.json_values import JsonItems, SortableText

_COLUMNS: dict[GroupKey, ColumnElement[Any]] = {
    GroupKey.USER: Job.user.expression,
    GroupKey.PROJECT: Job.project.expression,
    GroupKey.STATE: Job.state.expression,
}


@dataclass(frozen=True)
class Group:
    """Jobs that share a value."""

    value: str | None
    """None: jobs without a value."""
    name: str | None
    """Name of an experiment."""
    count: int

    def term(self, by: GroupKey) -> str:
        """Return the term of a query that keeps these jobs."""
        if self.value is None:
            return f"no:{by}"
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{by}="{escaped}"'


async def read_groups(
    session: AsyncSession, asked: PageRequest, by: GroupKey, now: datetime
) -> list[Group]:
    """Count the jobs that a list has by a field, the largest group first.

    Raises:
        InvalidValueError: of a part that is not valid.
    """
    wanted, states = await read_filters(session, asked, now)
    if states is not None:
        wanted.append(Job.state.in_(sorted(states)) if states else false())
    count = func.count()
    statement = with_progress(_grouped(by, count).where(*wanted), wanted)
    order = SortableText(statement.selected_columns["value"]).nulls_last()
    rows = await session.execute(statement.order_by(count.desc(), order))
    return [Group(*row) for row in rows]


def _grouped(by: GroupKey, count: ColumnElement[int]) -> Select[Any]:
    jobs: Select[Any] = select().select_from(Job)
    if by is GroupKey.EXPERIMENT:
        key, name = Job.experiment_id, func.min(Experiment.name)
        jobs = jobs.outerjoin(Experiment, Experiment.id == key)
        return jobs.add_columns(key.label("value"), name, count).group_by(key)
    text: ColumnElement[Any]
    if by is GroupKey.TAG:
        tags = JsonItems(Job.tags).table_valued(column("value", Text()))
        jobs, text = jobs.outerjoin(tags, true()), tags.c.value
    else:
        text = _COLUMNS[by]
    # Queries compare without case, too.
    value = func.min(text).label("value")
    return jobs.add_columns(value, null(), count).group_by(func.lower(text))
