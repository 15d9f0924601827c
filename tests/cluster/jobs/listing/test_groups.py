"""Numbers of jobs by a field, and the queries that list them."""

from typing import Any

import pytest
from support.storage.listed_jobs import START, ListedJobs

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.jobs.listing.keys import GroupKey
from trainhall.db.experiments import Experiment


@pytest.fixture
async def grouped(jobs: ListedJobs) -> ListedJobs:
    """Jobs of two users, one experiment and some tags; one is archived."""
    async with jobs.database.transaction() as session:
        session.add(
            Experiment(
                id="7c0d", number=1, name="rates", kind="sweep", spec={}, state="running",
                reason="", reason_code="", metric="loss", goal="min", objective_at="last",
                parallel=1, created_at=START,
            )
        )  # fmt: skip
    await jobs.add("a", user="Maria", tags=["best", 'the "1"'], state="failed")
    await jobs.add("b", user="maria", tags=["Best"], project="vision", metrics={"loss": 0.5})
    await jobs.add("c", experiment_id="7c0d", trial=1, repeat=1, metrics={"loss": 2.0})
    await jobs.add("d", user="jo", archived=True)
    return jobs


async def test_groups_are_counted_and_listed(grouped: ListedJobs) -> None:
    expected: dict[GroupKey, list[tuple[str | None, int, str]]] = {
        GroupKey.USER: [("Maria", 2, "b a"), (None, 1, "c")],
        GroupKey.PROJECT: [("default", 2, "c a"), ("vision", 1, "b")],
        GroupKey.STATE: [("completed", 2, "c b"), ("failed", 1, "a")],
        GroupKey.EXPERIMENT: [(None, 2, "b a"), ("7c0d", 1, "c")],
        GroupKey.TAG: [("best", 2, "b a"), ('the "1"', 1, "a"), (None, 1, "c")],
    }
    for by, groups in expected.items():
        found = await grouped.service.groups(by)
        # Which spelling names a group is the database's affair.
        shown = [(g.value.lower() if g.value else None, g.count) for g in found]
        wanted = [(value.lower() if value else None, count) for value, count, _ in groups]
        assert shown == wanted, by
        listed = {(g.value or "").lower(): await grouped.names(g.query) for g in found}
        assert listed == {(value or "").lower(): names for value, _, names in groups}, by
    experiments = await grouped.service.groups(GroupKey.EXPERIMENT)
    assert {group.name for group in experiments} == {None, "rates"}


async def test_groups_are_of_the_jobs_that_match(grouped: ListedJobs) -> None:
    async def counts(**asked: Any) -> list[tuple[str | None, int]]:
        found = await grouped.service.groups(GroupKey.USER, **asked)
        return [(group.value, group.count) for group in found]

    assert await counts(query="loss<1 -name:a") == [("maria", 1)]
    assert await counts(query="archived:yes") == [("jo", 1)]
    assert await counts(states=["failed"]) == [("Maria", 1)]
    assert await counts(states=["failed"], query="state:completed") == []
    assert await counts(search="c") == [(None, 1)]
    with pytest.raises(InvalidValueError, match="at character 4"):
        await counts(query="no:xyzzy")


async def test_jobs_without_a_value_are_found(grouped: ListedJobs) -> None:
    for query, names in {
        "no:user": "c", "-no:user": "b a", "no:tag,loss": "c a", "no:loss project:default": "a",
        "no:started_at": "c b a", "no:duration": "c b a", "no=experiment": "b a",
    }.items():  # fmt: skip
        assert await grouped.names(query) == names, query
