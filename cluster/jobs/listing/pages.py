"""Pages of jobs: filtered, in an order, from a cursor on."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnClause, ColumnElement, Select, Table, false, select, union_all
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.visitors import iterate

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.visibility import visible
from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.jobs.listing.conditions import conditions_of, matching, states_of
from trainhall.cluster.jobs.listing.query import QueryError, parse_query, with_caller
from trainhall.cluster.jobs.listing.sorting import Order, order_of
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.models import Job, JobProgress


@dataclass(frozen=True)
class PageRequest:
    """Page that is asked for; the parts that are given restrict each other."""

    limit: int
    caller: Principal
    """User who asks: only what they see is listed."""
    cursor: str | None = None
    states: Sequence[str] = ()
    """Any of these; all if there are none."""
    search: str | None = None
    query: str | None = None
    sort: str | None = None
    me: str | None = None
    """Name that `user:me` stands for in the query; None: it is not known."""


async def read_page(
    session: AsyncSession, asked: PageRequest, now: datetime
) -> tuple[list[tuple[Job, JobProgress]], str | None]:
    """Read the rows of a page, and the cursor of the next one.

    Raises:
        InvalidValueError: of a part that is not valid.
        InvalidCursorError: the cursor was not handed out by this order.
    """
    order = await order_of(session, asked.caller, asked.sort, now)
    statement = await page_statement(session, asked, order, now)
    found = (await session.execute(statement)).all()
    page = found[: asked.limit]
    following = None
    if len(found) > asked.limit:
        number, *values = page[-1]
        following = order.cursor(number, tuple(values))
    return await _load(session, [row.number for row in page]), following


async def _load(session: AsyncSession, numbers: Sequence[int]) -> list[tuple[Job, JobProgress]]:
    """Load the rows of jobs, in the order of the numbers."""
    # Joined, Postgres would read the progress of all jobs for the few that it looks for.
    jobs = {
        job.number: job for job in await session.scalars(select(Job).where(Job.number.in_(numbers)))
    }
    ids = [job.id for job in jobs.values()]
    of_jobs = await session.scalars(select(JobProgress).where(JobProgress.job_id.in_(ids)))
    progress = {each.job_id: each for each in of_jobs}
    return [(jobs[number], progress[jobs[number].id]) for number in numbers]


async def page_statement(
    session: AsyncSession, asked: PageRequest, order: Order, now: datetime
) -> Select[Any]:
    """Return the statement that finds the numbers and sort values of a page and one job more.

    It reads no other column: specs are long.
    """
    wanted, states = await read_filters(session, asked, now)
    if asked.cursor is not None:
        wanted.append(order.after(asked.cursor))
    if states is not None and not states:
        wanted.append(false())
    elif states is not None and order.keys:
        wanted.append(Job.state.in_(sorted(states)))
    elif states is not None:
        # One by one: an index has the jobs of a state in their order, and not those of several.
        of_states = [
            _page(order, [Job.state == state, *wanted], asked.limit).subquery()
            for state in sorted(states)
        ]
        wanted = [Job.number.in_(union_all(*(select(each.c.number) for each in of_states)))]
    return _page(order, wanted, asked.limit)


async def read_filters(
    session: AsyncSession, asked: PageRequest, now: datetime
) -> tuple[list[ColumnElement[bool]], frozenset[str] | None]:
    """Return the conditions of what is asked for, and the states that it leaves; None: all.

    Raises:
        InvalidValueError: of a part that is not valid.
    """
    states = _check_states(asked.states)
    wanted, named = await _read_query(session, asked, now)
    if asked.search is not None:
        text = _with_plain_spaces(asked.search)
        if not text.isprintable():
            message = "must not contain control characters"
            raise InvalidValueError("search", asked.search, message)
        wanted.append(matching(text))
    wanted += visible(asked.caller, Job.project)
    if named is not None:
        states = states & named if states is not None else named
    return wanted, states


async def _read_query(
    session: AsyncSession, asked: PageRequest, now: datetime
) -> tuple[list[ColumnElement[bool]], frozenset[str] | None]:
    """Return the conditions of a query, and the states that it names; None: any."""
    query = asked.query or ""
    try:
        terms = with_caller(parse_query(query), asked.me)
        conditions = await conditions_of(session, asked.caller, terms, now)
        if not any(term.field and term.field.text == "archived" for term in terms):
            conditions.append(Job.archived.is_(False))
        return conditions, states_of(terms)
    except QueryError as error:
        message = f"at character {error.position + 1}: {error}"
        raise InvalidValueError("query", query, message, position=error.position) from None


def _with_plain_spaces(text: str) -> str:
    """Replace other spaces, as a word processor writes them: no name of a job has any."""
    return "".join(" " if unicodedata.category(each) == "Zs" else each for each in text)


def _page(order: Order, wanted: list[ColumnElement[bool]], limit: int) -> Select[Any]:
    keys = [key.expression for key in order.keys]
    statement = select(Job.number, *keys).where(*wanted).order_by(*order.columns).limit(limit + 1)
    return with_progress(statement, [*keys, *wanted])


def with_progress(statement: Select[Any], expressions: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Join the progress of jobs, if one of the expressions reads it."""
    if any(_reads_progress(expression) for expression in expressions):
        return statement.where(JobProgress.job_id == Job.id)
    return statement


def _reads_progress(expression: ColumnElement[Any]) -> bool:
    tables = [part.table for part in iterate(expression) if isinstance(part, ColumnClause)]
    return any(
        isinstance(table, Table) and table.name == JobProgress.__tablename__ for table in tables
    )


def _check_states(states: Sequence[str]) -> frozenset[str] | None:
    for state in states:
        if state not in set(JobState):
            known = ", ".join(JobState)
            raise InvalidValueError("state", state, f"{state!r} is not a state; known: {known}")
    return frozenset(states) or None
