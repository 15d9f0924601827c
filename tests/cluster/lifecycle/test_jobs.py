"""Only the listed transitions happen, final is final, and a guard that fails changes nothing."""

import asyncio
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from sqlalchemy import select
from support.cluster.simulated import wipe
from support.examples import share_of

from trainhall.cluster.lifecycle.jobs import (
    IllegalTransitionError,
    create_attempt,
    create_job,
    move_attempt,
    move_job,
    request_stop,
)
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import (
    ACTIVE_ATTEMPT_STATES,
    ACTIVE_STATES,
    ATTEMPT_EDGES,
    FINAL_STATES,
    JOB_EDGES,
    WAITING_STATES,
    AttemptState,
    JobState,
)
from trainhall.db.database import Database
from trainhall.db.documents import Allocation, CheckpointPlan
from trainhall.db.models import Attempt, Event, Job
from trainhall.training.fencing import FencingToken

WHY = Reason.of(ReasonCode.SUBMITTED)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def new_job(job_id: str, number: int) -> Job:
    return Job(
        id=job_id, number=number, name="test", spec={}, priority=0, reason="submitted",
        attempt=0, generation=0, restarts=0, restarts_step=0, world_size=1,
    )  # fmt: skip


def new_attempt(job_id: str) -> Attempt:
    return Attempt(
        job_id=job_id, number=1, generation=1, reason="placed", goal="run", revoked=False,
        world_size=1, allocation=Allocation(), checkpoint_plan=CheckpointPlan(),
        node_outcomes={}, started_at=NOW,
    )  # fmt: skip


def test_job_edge_table_is_complete() -> None:
    reached = {JobState.QUEUED} | {end for _, end in JOB_EDGES}
    assert reached == set(JobState)
    assert {start for start, _ in JOB_EDGES} == set(JobState)
    for start, end in JOB_EDGES:
        if start in FINAL_STATES:
            assert end is JobState.QUEUED
            assert JOB_EDGES[start, end] == "p"
    assert not (WAITING_STATES & ACTIVE_STATES)
    for state, _ in ATTEMPT_EDGES:
        assert state in ACTIVE_ATTEMPT_STATES


async def test_only_listed_edges(database: Database) -> None:
    async with database.transaction() as session:
        for start, end in product(JobState, JobState):
            if (start, end) in JOB_EDGES:
                assert not await move_job(
                    session, "nobody", start, end, reason=WHY, now=NOW, attempt=0
                )
            else:
                with pytest.raises(IllegalTransitionError):
                    await move_job(session, "nobody", start, end, reason=WHY, now=NOW, attempt=0)


@pytest.mark.side_by_side
async def test_concurrent_job_transitions_are_ordered(database: Database) -> None:
    async with database.transaction() as session:
        await create_job(session, new_job("a", 1), now=NOW)

    async def move(end: JobState) -> bool:
        async with database.transaction() as session:
            return await move_job(
                session, "a", JobState.QUEUED, end, reason=WHY, now=NOW, attempt=0
            )

    moved = await asyncio.gather(
        *(move(JobState.CANCELLED) for _ in range(4)), move(JobState.PAUSED)
    )
    assert sum(moved) == 1
    async with database.session() as session:
        events = (await session.scalars(select(Event).where(Event.job_id == "a"))).all()
        assert len(events) == 2


async def test_goal_only_grows_and_ignores_revoked_token(database: Database) -> None:
    token = FencingToken("a", 1, 1)
    async with database.transaction() as session:
        job = new_job("a", 1)
        await create_job(session, job, now=NOW)
        await create_attempt(session, job, new_attempt("a"))

    async def goal() -> tuple[str, str]:
        async with database.session() as session:
            row = await session.get(Attempt, ("a", 1))
            assert row is not None
            return row.state, row.goal

    async with database.transaction() as session:
        assert await request_stop(session, token, "pause", reason=WHY, now=NOW)
    assert await goal() == ("stopping", "pause")
    async with database.transaction() as session:
        assert await request_stop(session, token, "stop", reason=WHY, now=NOW)
        assert await request_stop(session, token, "pause", reason=WHY, now=NOW)
        assert not await request_stop(session, FencingToken("a", 1, 2), "stop", reason=WHY, now=NOW)
    assert await goal() == ("stopping", "stop")
    async with database.transaction() as session:
        assert await move_attempt(
            session, token, AttemptState.STOPPING, AttemptState.LOST, reason=WHY, now=NOW
        )
        assert not await request_stop(session, token, "stop", reason=WHY, now=NOW)
        for end in (AttemptState.COMPLETED, AttemptState.FAILED, AttemptState.LOST):
            assert not await move_attempt(
                session, token, AttemptState.STOPPING, end, reason=WHY, now=NOW
            )
        with pytest.raises(IllegalTransitionError):
            await move_attempt(
                session, token, AttemptState.LOST, AttemptState.RUNNING, reason=WHY, now=NOW
            )


def test_any_sequence_of_moves(database_url: str) -> None:
    """Against a model: the database's state is always the one that the table leads to."""
    loop = asyncio.new_event_loop()
    db = Database(database_url)
    loop.run_until_complete(db.migrate())

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.state = JobState.QUEUED
            self.events = ["queued"]
            loop.run_until_complete(self._create())

        async def _create(self) -> None:
            await wipe(db)
            async with db.transaction() as session:
                await create_job(session, new_job("a", 1), now=NOW)

        async def _move(self, start: JobState, end: JobState, attempt: int) -> bool:
            async with db.transaction() as session:
                return await move_job(
                    session, "a", start, end, reason=WHY, now=NOW, attempt=attempt
                )

        @rule(
            believed=st.none() | st.sampled_from(JobState),
            end=st.sampled_from(JobState),
            attempt=st.sampled_from([0, 0, 0, 1]),
        )
        def move(self, believed: JobState | None, end: JobState, attempt: int) -> None:
            start = believed or self.state
            legal = (start, end) in JOB_EDGES
            try:
                moved = loop.run_until_complete(self._move(start, end, attempt))
            except IllegalTransitionError:
                assert not legal
                return
            assert legal
            assert moved == (start is self.state and attempt == 0)
            if moved:
                self.state = end
                self.events.append(end.value)

        def teardown(self) -> None:
            async def look() -> tuple[Any, list[str]]:
                async with db.session() as session:
                    job = await session.get(Job, "a")
                    events = await session.scalars(select(Event).order_by(Event.seq))
                    return job, [e.data["state"] for e in events]

            job, events = loop.run_until_complete(look())
            assert job.state == self.state
            assert (job.finished_at is not None) == (self.state in FINAL_STATES)
            assert events == self.events

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=share_of(15),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(db.close())
        loop.close()
