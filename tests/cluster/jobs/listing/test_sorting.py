"""Jobs in the order of a key, over several pages."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Dialect, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from support.storage.listed_jobs import START, ListedJobs

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.errors import InvalidCursorError, InvalidValueError
from trainhall.cluster.jobs.listing.pages import PageRequest, page_statement
from trainhall.cluster.jobs.listing.sorting import order_of
from trainhall.db.database import Database

HOUR = timedelta(hours=1)
DIALECTS: dict[str, Callable[[], Dialect]] = {
    "sqlite": SQLiteDialect,
    "postgresql": PGDialect,
}


async def test_sorts_by_columns(jobs: ListedJobs) -> None:
    await jobs.add("b", state="failed", priority=-3, world_size=4, step=7)
    await jobs.add("A", state="queued", priority=5, world_size=1, step=9)
    await jobs.add("c", state="running", priority=0, world_size=2, step=2**40)
    await jobs.add("Ab", state="running", priority=0, world_size=16, step=7)
    orders = {
        "name": "A Ab b c", "-name": "c b Ab A",
        "state": "A Ab c b", "-state": "b Ab c A",
        "created_at": "b A c Ab", "-created_at": "Ab c A b",
        "step": "Ab b A c", "-step": "c A Ab b",
        "priority": "b Ab c A", "-priority": "A Ab c b",
        "world_size": "A c b Ab", "-world_size": "Ab b c A",
    }  # fmt: skip
    assert {sort: await jobs.names(sort=sort) for sort in orders} == orders


async def test_jobs_without_a_time_are_last(jobs: ListedJobs) -> None:
    await jobs.add("new1", "new2", "new3")
    await jobs.add("long", started_at=START, finished_at=START + 9 * HOUR, ran=2.5)
    await jobs.add("short", started_at=START + HOUR, finished_at=START + 2 * HOUR, ran=0.25)
    assert await jobs.names(sort="started_at") == "long short new3 new2 new1"
    assert await jobs.names(sort="-started_at") == "short long new3 new2 new1"
    assert await jobs.names(sort="finished_at") == "short long new3 new2 new1"
    assert await jobs.names(sort="duration") == "short long new3 new2 new1"
    assert await jobs.names(sort="-duration") == "long short new3 new2 new1"


async def test_sorts_by_parameters_and_metrics(jobs: ListedJobs) -> None:
    await jobs.add("none", "empty", parameters={})
    await jobs.add("a", parameters={"lr": 0.1, "opt": "sgd"}, metrics={"val/f1": 0.5, "ü": 1})
    await jobs.add("b", parameters={"lr": 1, "opt": "Adam"}, metrics={"val/f1": "NaN", "ü": 3})
    await jobs.add("c", parameters={"lr": 2**60, "opt": 3}, metrics={"val/f1": -1e-9, "ü": 2})
    await jobs.add("d", parameters={"lr": "auto", "opt": True}, metrics={"val/f1": 0.5})
    orders = {
        "parameters.lr": "a b c d empty none", "-parameters.lr": "c b a d empty none",
        "parameters.opt": "c b a d empty none", "-parameters.opt": "c d a b empty none",
        "metrics.val/f1": "c d a b empty none", "-metrics.val/f1": "d a c b empty none",
        "metrics.ü": "a c b d empty none", "parameters.other": "d c b a empty none",
    }  # fmt: skip
    assert {sort: await jobs.names(sort=sort) for sort in orders} == orders


async def test_sorts_and_filters_by_ranges_of_metrics(jobs: ListedJobs) -> None:
    last = {"val/f1": 0.5}
    await jobs.add("none")
    await jobs.add("a", metrics=last, ranges={"val/f1": [0.25, 0.75]})
    await jobs.add("b", metrics=last, ranges={"val/f1": [-1e-9, 0.5]})
    await jobs.add("c", metrics={**last, "val/f1.max": 7}, ranges={"val/f1": [0.5, 2]})
    await jobs.add("d", metrics=last)
    assert await jobs.names(sort="metrics.val/f1.min") == "b a c d none"
    assert await jobs.names("val/f1.min<0.5", sort="-metrics.val/f1.min") == "a b"
    assert await jobs.names("metrics.val/f1.min>=0.5") == "c"
    # A metric of that very name comes first.
    assert await jobs.names(sort="metrics.val/f1.max") == "c d b a none"


async def test_sorts_by_gpu_hours_and_texts(jobs: ListedJobs) -> None:
    await jobs.add("none")
    await jobs.add("a", user="Zoe", ran=3600.0, gpus=4)
    await jobs.add("b", user="adam", ran=7200.0, gpus=1, gpu_seconds=1800.0)
    await jobs.add("c", user="maria", project="vision", ran=9.0)
    assert await jobs.names(sort="-gpu_hours") == "a b c none"
    assert await jobs.names("gpu_hours>0", sort="gpu_hours") == "b a"
    hours = {job.name: job.gpu_hours for job in (await jobs.service.list()).items}
    assert hours == {"none": 0, "a": 4, "b": 2.5, "c": 0}
    assert await jobs.names(sort="user") == "b c a none"
    assert await jobs.names(sort="-project") == "c b a none"


async def test_unknown_key_names_the_nearest(jobs: ListedJobs) -> None:
    await jobs.add("a", parameters={"lr": 0.1}, metrics={"eval_loss": 0.5, "top.max": 2})
    for sort, expected in {
        "nam": "did you mean name?", "-eval_loss": "did you mean metrics.eval_loss?",
        "lr": "did you mean parameters.lr?", "metric.eval_loss": "did you mean metrics.eval_loss?",
        "-": "must be one of name, state,", "parameters.": "use parameters.NAME",
        "parameters.a b": "use parameters.NAME", 'metrics."': "use metrics.NAME",
        "metrics.a\0": "must be one of",
        "number": "parameters.NAME, metrics.NAME",
    }.items():  # fmt: skip
        with pytest.raises(InvalidValueError, match="sort: ") as caught:
            await jobs.names(sort=sort)
        assert expected in caught.value.message
    assert await jobs.names(sort="metrics.top.max") == "a"


async def test_cursor_continues_its_own_order_alone(jobs: ListedJobs) -> None:
    await jobs.add("a", "b", "ü" * 128, "🙂" * 128)
    cursors = {
        sort: (await jobs.service.list(limit=1, sort=sort)).next_cursor
        for sort in ("name", "-name", "step", "metrics." + "m" * 128, None, "created_at")
    }
    for sort, cursor in cursors.items():
        assert cursor is not None
        assert len((await jobs.service.list(sort=sort, cursor=cursor)).items) == 3
        for other in cursors.keys() - {sort}:
            with pytest.raises(InvalidCursorError):
                await jobs.service.list(sort=other, cursor=cursor)


_FORGET_STATISTICS = (
    "DELETE FROM pg_statistic WHERE starelid = 'jobs'::regclass",
    "UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid = 'jobs'::regclass",
)


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"sort": "created_at"}, "uq_jobs_number"),
        ({"sort": "-created_at", "query": "step>3"}, "uq_jobs_number"),
        ({"query": "state:failed name:x"}, "ix_jobs_state"),
        ({"query": "state:failed,paused", "sort": "created_at"}, "ix_jobs_state"),
    ],
)
async def test_order_of_submission_uses_an_index(
    database: Database, asked: dict[str, Any], index: str
) -> None:
    async with database.transaction() as session:
        if database.dialect == "postgresql":
            # An earlier test's rows may have been analyzed: which index it takes depends on them.
            for statement in _FORGET_STATISTICS:
                await session.execute(text(statement))
            # Of an empty table it would read all rows.
            await session.execute(text("SET LOCAL enable_seqscan = off"))
            await session.execute(text("SET LOCAL enable_bitmapscan = off"))
            await session.execute(text("SET LOCAL enable_sort = off"))
        request = PageRequest(limit=10, caller=SYSTEM, **asked)
        order = await order_of(session, SYSTEM, request.sort, START)
        page = await page_statement(session, request, order, START)
        prefix = "EXPLAIN QUERY PLAN " if database.dialect == "sqlite" else "EXPLAIN "
        dialect = DIALECTS[database.dialect]()
        compiled = page.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        written = str(compiled).replace("%%", "%").replace(":", r"\:")
        rows = await session.execute(text(prefix + written))
        plan = "\n".join(str(tuple(row)) for row in rows)
    assert index in plan.replace("sqlite_autoindex_jobs_2", "uq_jobs_number")
    # The few jobs of several states are sorted; all jobs are not.
    assert "TEMP B-TREE" not in plan or "state" in asked.get("query", "")
