"""What a node may send of an attempt: its own ranks' reports, under their processes' names."""

from collections.abc import Sequence

import pytest
from sqlalchemy import update
from support.storage.frames import NOW, add_job

from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.nodes.holders import Holders
from trainhall.cluster.wire.writers import (
    event_file_writer,
    rank_writer,
    recovery_writer,
    tracking_writer,
)
from trainhall.db.database import Database
from trainhall.db.documents import (
    Allocation,
    CheckpointPlan,
    GenerationRecord,
    NodeAllocation,
    RankPlacement,
    UnrecordedCheckpoints,
)
from trainhall.db.models import Attempt


def hosts(**ranks: Sequence[int]) -> Allocation:
    """Hosts in order, with their ranks."""
    return Allocation(
        NodeAllocation(name, name, i, tuple(RankPlacement(rank) for rank in each))
        for i, (name, each) in enumerate(ranks.items())
    )


async def store(
    database: Database,
    *generations: tuple[int, Allocation],
    attempt: int = 1,
    plan: CheckpointPlan | None = None,
) -> None:
    """Give an attempt its generations, of which the last is the present one."""
    number, allocation = generations[-1]
    records = [
        GenerationRecord(number, NOW, "", allocation.world_size, allocation)
        for number, allocation in generations
    ]
    async with database.transaction() as session:
        await session.execute(
            update(Attempt)
            .where(Attempt.job_id == "job", Attempt.number == attempt)
            .values(
                generation=number,
                allocation=allocation,
                generations=tuple(records),
                checkpoint_plan=plan or CheckpointPlan(),
            )
        )


async def test_node_writes_as_its_ranks_alone(database: Database) -> None:
    await add_job(database)
    await store(database, (1, hosts(alpha=[0], beta=[1])), (2, hosts(alpha=[0], gamma=[1])))
    holders = Holders(database)
    right = [("alpha", 1, 0), ("alpha", 2, 0), ("beta", 1, 1), ("gamma", 2, 1)]
    for node, generation, rank in right:
        for _ in range(2):  # the second time from memory
            for name_of in (rank_writer, tracking_writer, event_file_writer):
                await holders.check_writer(node, "job", 1, name_of("job", 1, generation, rank))
            await holders.check_rank(node, "job", 1, rank)
            await holders.check_attempt(node, "job", 1)
    for node in ("alpha", "beta", "gamma"):
        for generation in (1, 2):
            for rank in (0, 1, 2):
                if (node, generation, rank) not in right:
                    for name_of in (rank_writer, tracking_writer, event_file_writer):
                        writer = name_of("job", 1, generation, rank)
                        with pytest.raises(NotFoundError, match="on this node"):
                            await holders.check_writer(node, "job", 1, writer)
    for writer in (
        "",
        "0",
        "0-",
        "0-00000000",
        "x-0a0a0a0a",
        "9" * 60,
        rank_writer("job", 2, 1, 0),
    ):
        with pytest.raises(NotFoundError, match="on this node"):
            await holders.check_writer("alpha", "job", 1, writer)
    with pytest.raises(NotFoundError, match=r"no rank .1 of attempt 1 of job job on this node"):
        await holders.check_rank("alpha", "job", 1, 1)
    with pytest.raises(NotFoundError, match="on this node"):
        await holders.check_attempt("stranger", "job", 1)


async def test_node_that_comes_later_is_known_then(database: Database) -> None:
    await add_job(database)
    await store(database, (1, hosts(alpha=[0])))
    holders = Holders(database)
    with pytest.raises(NotFoundError):
        await holders.check_attempt("beta", "job", 1)
    await store(database, (1, hosts(alpha=[0])), (2, hosts(alpha=[0], beta=[1])))
    await holders.check_attempt("beta", "job", 1)
    await holders.check_writer("beta", "job", 1, rank_writer("job", 1, 2, 1))


async def test_writer_of_a_generation_off_record_is_known(database: Database) -> None:
    """Of many generations the first and the newest are on record."""
    await add_job(database)
    await store(database, (1, hosts(alpha=[0])), (90, hosts(alpha=[0], beta=[1])))
    holders = Holders(database)
    await holders.check_writer("beta", "job", 1, rank_writer("job", 1, 40, 1))
    for generation, rank in ((1, 1), (40, 0), (91, 1)):
        with pytest.raises(NotFoundError):
            await holders.check_writer("beta", "job", 1, rank_writer("job", 1, generation, rank))


async def test_next_attempt_reports_what_it_searches_for(database: Database) -> None:
    await add_job(database, attempts=3)
    await store(database, (1, hosts(lost=[0])))
    searches = CheckpointPlan(unrecorded=UnrecordedCheckpoints(1, 1, 10))
    await store(database, (1, hosts(alpha=[0], beta=[1])), attempt=2, plan=searches)
    await store(database, (1, hosts(gamma=[0])), attempt=3)
    holders = Holders(database)
    found = recovery_writer("job", 1, 1)
    await holders.check_writer("lost", "job", 1, found)
    await holders.check_writer("alpha", "job", 1, found)
    for node, writer in (
        ("beta", found), ("gamma", found),
        ("alpha", recovery_writer("job", 1, 2)), ("alpha", rank_writer("job", 1, 1, 0)),
    ):  # fmt: skip
        with pytest.raises(NotFoundError, match="of attempt 1 of job job on this node"):
            await holders.check_writer(node, "job", 1, writer)


async def test_unknown_attempt_is_left_to_its_service(database: Database) -> None:
    await add_job(database, attempts=2)
    for attempt in (3, 9):
        await Holders(database).check_writer("alpha", "job", attempt, "0-00000000")
    await Holders(database).check_attempt("alpha", "gone", 1)
