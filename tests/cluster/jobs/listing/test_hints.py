"""Hint for a query that finds nothing."""

from collections.abc import Callable

import pytest
from sqlalchemy import Dialect, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from support.storage.listed_jobs import ListedJobs

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.jobs.listing import fields
from trainhall.cluster.jobs.listing.fields import newest_statement
from trainhall.cluster.jobs.listing.hints import metric_hint

DIALECTS: dict[str, Callable[[], Dialect]] = {
    "sqlite": SQLiteDialect,
    "postgresql": PGDialect,
}


async def hint(jobs: ListedJobs, query: str) -> str | None:
    return (await jobs.service.list(query=query)).hint


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("parameters.lrr>0", "No job has a parameter lrr; did you mean lr?"),
        ("metrics.los<1", "No job has a metric los; did you mean loss?"),
        ("state:failed parameters.seed=3", "No job has a parameter seed."),
        ("parameters.lr>9", None),
        ("metrics.loss.min>9", None),
        ("-parameters.lrr>0 state:failed", None),
        ("state:failed", None),
    ],
)
async def test_empty_list_hints_at_unknown_name(
    jobs: ListedJobs, query: str, expected: str | None
) -> None:
    await jobs.add("a", parameters={"lr": 0.1}, metrics={"loss": 1.0})
    assert await hint(jobs, query) == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("eval_acuracy", "No job has a metric eval_acuracy; did you mean eval_accuracy?"),
        ("eval_accuracy", None),
        ("reward", None),  # of a task that has not run yet
    ],
)
async def test_unknown_metric_has_a_hint_if_similar(
    jobs: ListedJobs, metric: str, expected: str | None
) -> None:
    await jobs.add("a", metrics={"loss": 1.0, "eval_accuracy": 0.5})
    async with jobs.database.session() as session:
        assert await metric_hint(session, SYSTEM, metric) == expected


async def test_empty_list_names_who_me_is(jobs: ListedJobs) -> None:
    async def hint_for(me: str, query: str = "user:me") -> str | None:
        return (await jobs.service.list(query=query, me=me)).hint

    await jobs.add("a", user="Maria")
    expected = (
        "No job belongs to root, whom user:me means here; name another user, as in user:maria."
    )
    assert await hint_for("root") == expected
    assert await hint_for("maria", "user:me state:failed") is None
    assert await hint_for("root", "-user:me state:failed") is None


async def test_list_with_jobs_has_no_hint(jobs: ListedJobs) -> None:
    await jobs.add("a", parameters={"lr": 0.1})
    assert await hint(jobs, "-parameters.lrr>0") is None
    assert (await jobs.service.list()).hint is None


async def test_hint_reads_the_newest_jobs(
    jobs: ListedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "_NEWEST", 2)
    await jobs.add("old", parameters={"lr": 0.1})
    await jobs.add("b", "c", parameters={"rate": 0.1})
    assert await hint(jobs, "parameters.lr>9") == "None of the newest 2 jobs has a parameter lr."
    async with jobs.database.session() as session:
        is_sqlite = jobs.database.dialect == "sqlite"
        dialect = DIALECTS[jobs.database.dialect]()
        written = newest_statement(SYSTEM).compile(
            dialect=dialect, compile_kwargs={"literal_binds": True}
        )
        if not is_sqlite:
            # Of a table with few rows it would read all.
            await session.execute(text("SET LOCAL enable_seqscan = off"))
            await session.execute(text("SET LOCAL enable_sort = off"))
        prefix = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN "
        rows = await session.execute(text(prefix + str(written)))
        plan = "\n".join(str(tuple(row)) for row in rows)
    assert "uq_jobs_number" in plan.replace("sqlite_autoindex_jobs_2", "uq_jobs_number")
    assert "TEMP B-TREE" not in plan
