"""Attempts that continue under another generation, on simulated nodes."""

from typing import Any

import pytest
from sqlalchemy import select
from support.cluster.simulated import RunningAttempt, SimulatedCluster, failure
from support.database import on_sqlite
from support.storage.frames import frame, table

from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.reconcile.apply import Applier
from trainhall.cluster.reconcile.decisions import EndAttempt, Regroup
from trainhall.cluster.scheduling.placement import PlacedNode
from trainhall.db.models import Attempt, Grant
from trainhall.training.fencing import FencingToken
from trainhall.training.link.events import RankEvent
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.launch import Unrecorded
from trainhall.training.link.status import FailedRank, Outcome

ELASTIC = {"min_workers": 2, "max_workers": 4}


async def running(cluster: SimulatedCluster, resources: dict[str, int], **more: Any) -> str:
    """A job whose ranks have begun to train."""
    job_id = await cluster.submit(resources=resources, **more)
    await cluster.run_until(job_id, "running")
    await began(cluster, job_id)
    return job_id


async def began(cluster: SimulatedCluster, job_id: str) -> None:
    await cluster.report_event(
        job_id, "started", {"resumed_from": None, "total_steps": 100, "samples": 9}
    )
    await cluster.heartbeat()


async def generations(cluster: SimulatedCluster, job_id: str) -> list[tuple[int, int]]:
    """Of the newest attempt: each generation with its world size."""
    newest = (await cluster.coordinator.jobs.attempts(job_id))[-1]
    return [(g.generation, g.world_size) for g in newest.generations]


def ranks(attempt: RunningAttempt) -> list[tuple[int, int]]:
    return [(p.rank, p.device_index) for p in attempt.assignment.launch.ranks]


async def test_regroup_replaces_failed_rank_on_its_device(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=3)
    job_id = await running(cluster, {"workers": 3})
    before = node.running(job_id)
    assert before.assignment.launch.in_place
    before.fall(1)
    await cluster.heartbeat()
    after = node.running(job_id)
    assert after is before, "another process supervises it"
    assert ranks(after) == [(0, 0), (1, 1), (2, 2)]
    assert (after.assignment.launch.generation, after.assignment.launch.broken) == (2, 1)
    assert await generations(cluster, job_id) == [(1, 3), (2, 3)]
    job = await cluster.job(job_id)
    assert (job.state, job.attempt, job.generation, job.world_size) == ("running", 1, 2, 3)
    events = (await cluster.coordinator.jobs.events(job_id)).items
    (regrouped,) = [event for event in events if event.kind == "regrouped"]
    why = "rank 1 was killed (SIGKILL); continues with 3 workers; restart 1 of 3"
    assert regrouped.reason == f"generation 2: {why}"
    assert regrouped.data["generation"] == 2
    assert regrouped.data["failure"]["signal"] == 9
    # The rank that reported it may die at once, and no other knows that it had.
    for _ in range(2):
        await cluster.report_event(job_id, "stepped", {"generation": 2, "step": 8, "loaded": 1.0})
    events = (await cluster.coordinator.jobs.events(job_id)).items
    assert [event.kind for event in events].count("recovered") == 1
    await cluster.check()


@on_sqlite
async def test_regroup_updates_reason_at_full_size(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", slots=3)
    job_id = await running(cluster, {"workers": 3})
    node.running(job_id).fall(1)
    cluster.send_report(node)
    await cluster.settle()
    why = "rank 1 was killed (SIGKILL); continues with 3 workers; restart 1 of 3"
    assert (await cluster.job(job_id)).reason == why, "its ranks have not taken a step yet"
    await cluster.heartbeat()
    assert (await cluster.job(job_id)).reason == "3 ranks on alpha"
    (attempt,) = await cluster.coordinator.jobs.attempts(job_id)
    assert attempt.reason == "3 ranks on alpha"
    assert attempt.generations[-1].reason == why, "the history keeps it"


@on_sqlite
async def test_regroup_keeps_reason_of_user_request(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2})
    node.running(job_id).fall(1)
    cluster.send_report(node)
    await cluster.settle()
    await cluster.coordinator.jobs.resize(job_id, {"workers": 4})
    asked = "resize requested by a user: 4 workers instead of 2"
    await cluster.heartbeat()
    assert (await cluster.job(job_id)).reason.startswith(f"{asked}; it keeps 2; on the cluster")


@on_sqlite
async def test_joining_rank_may_start_from_own_attempts_save(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2})
    assert node.running(job_id).assignment.launch.checkpoint.resume == []
    saved = await cluster.save_checkpoint(job_id, 40)
    node.running(job_id).fall(1)
    await cluster.heartbeat()
    assert node.running(job_id).assignment.launch.checkpoint.resume == [saved]
    late = {"name": "step-00000050-a1-g1", "step": 50, "size": 10, "metrics": {}}
    await cluster.report_event(job_id, "checkpoint", late)
    found = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert [checkpoint.step for checkpoint in found] == [40], "of a generation that is over"
    assert (await cluster.save_checkpoint(job_id, 60)).endswith("-a1-g2")


@on_sqlite
async def test_attempts_save_precedes_unrecorded_checkpoints(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2})
    await cluster.finish(job_id, Outcome.FAILED, failure())
    cluster.clock.advance(60)
    await cluster.heartbeat()
    await cluster.run_until(job_id, "running")
    await began(cluster, job_id)
    unrecorded = Unrecorded(attempt=1, generation=1, after_step=-1)
    for generation, saved in ((1, []), (2, []), (3, ["step-00000040-a2-g2"])):
        launch = node.running(job_id).assignment.launch
        assert (launch.generation, launch.checkpoint.resume) == (generation, saved)
        assert launch.checkpoint.unrecorded == (None if saved else unrecorded)
        if generation == 2:
            await cluster.save_checkpoint(job_id, 40)
        node.running(job_id).fall(1)
        await cluster.heartbeat()


@on_sqlite
async def test_the_budget_of_restarts_counts_regroupings(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2}, recovery={"max_restarts": 2})
    for _ in range(2):
        node.running(job_id).fall(0)
        await cluster.heartbeat()
    assert (await cluster.job(job_id)).generation == 3
    node.running(job_id).fall(0)
    await cluster.heartbeat()
    assert node.running(job_id).assignment.goal == "stop"
    await cluster.work(3)
    job = await cluster.job(job_id)
    assert job.state == "failed"
    assert "no restarts left" in job.reason


@on_sqlite
async def test_regroup_leaves_and_quarantines_failing_node(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    beta = await cluster.add_node("beta", slots=2)
    job_id = await running(cluster, ELASTIC)
    fault = Failure(message="Xid 79", cause=Cause.DEVICE_FAULT)
    for _ in range(2):
        attempt = alpha.running(job_id)
        attempt.fall(attempt.assignment.launch.ranks[0].rank, fault)
        await cluster.heartbeat(5)
    quarantined = await cluster.coordinator.nodes.get(alpha.node_id)
    assert quarantined.drain_reason is not None
    assert quarantined.drain_reason.startswith(
        "quarantined (unhealthy): a device failed 2 times within 24 hours"
    )
    assert await generations(cluster, job_id) == [(1, 4), (2, 4), (3, 4), (4, 2)]
    await cluster.work(3)
    assert (await cluster.coordinator.nodes.get(alpha.node_id)).state == "drained"
    assert len(ranks(beta.running(job_id))) == 2
    await cluster.check()


@on_sqlite
async def test_regroup_does_not_retry_user_errors(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2})
    node.running(job_id).fall(0, Failure(rank=0, exit_code=1, message="no such file", final=True))
    await cluster.heartbeat()
    await cluster.work(3)
    assert (await cluster.job(job_id)).state == "failed"


@on_sqlite
async def test_unstarted_ranks_restart_instead_of_regroup(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(workers=2)
    await cluster.run_until(job_id, "running")
    node.running(job_id).fall(1, failure(3))
    await cluster.heartbeat()
    await cluster.work(3)
    job = await cluster.run_until(job_id, "running")
    assert (job.attempt, job.generation) == (2, 1)


async def test_job_shrinks_on_lost_node_and_grows(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    beta = await cluster.add_node("beta", slots=2)
    job_id = await running(cluster, ELASTIC)
    assert (await cluster.job(job_id)).world_size == 4
    kept = alpha.running(job_id)
    await cluster.disconnect(beta)
    for _ in range(50):
        await cluster.heartbeat(2)
    job = await cluster.job(job_id)
    assert (job.state, job.attempt, job.generation, job.world_size) == ("running", 1, 2, 2)
    assert job.reason == "node beta is lost; continues with 2 workers instead of 4"
    assert alpha.running(job_id) is kept
    await cluster.check()

    await cluster.connect(beta, new_agent=False)
    await cluster.settle()
    await cluster.work(2)
    assert all(token[2] > 1 for token in beta.attempts), "the first generation was not ended"
    for _ in range(8):
        await cluster.heartbeat(2)
    await cluster.work(4)
    job = await cluster.job(job_id)
    assert (job.attempt, job.generation, job.world_size) == (1, 3, 4)
    assert kept.assignment.launch.broken == 1, "growth loses no rank"
    assert job.reason == "4 ranks on alpha, beta"
    assert ranks(kept) == [(0, 0), (1, 1)]
    assert ranks(beta.running(job_id)) == [(2, 0), (3, 1)]
    assert (kept.assignment.joined, beta.running(job_id).assignment.joined) == (1, 3)
    await cluster.check()
    await cluster.finish(job_id)
    assert (await cluster.job(job_id)).state == "completed"
    assert all(d.job_id is None for d in await cluster.coordinator.nodes.devices())


@on_sqlite
async def test_a_drained_node_is_left_without_a_checkpoint(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", slots=2)
    beta = await cluster.add_node("beta", slots=2)
    job_id = await running(cluster, {"workers": 2})
    (first, other) = (alpha, beta) if alpha.attempts else (beta, alpha)
    bystander = await running(cluster, {"workers": 2})
    await cluster.coordinator.nodes.drain(other.node_id)
    await cluster.settle()
    await cluster.work(3)
    assert (await cluster.job(bystander)).state == "recovering", "there is no other device for it"
    assert first.running(job_id).token[2] == 1

    elastic = await cluster.add_node("gamma", slots=2)
    third = await cluster.add_node("delta", slots=2)
    await cluster.work(4)
    grown = await cluster.submit(resources=ELASTIC)
    await cluster.run_until(grown, "running")
    await began(cluster, grown)
    held = elastic if any(t[0] == grown for t in elastic.attempts) else third
    size = (await cluster.job(grown)).world_size
    await cluster.coordinator.nodes.drain(held.node_id)
    await cluster.settle()
    await cluster.work(4)
    job = await cluster.job(grown)
    assert job.world_size <= size
    await cluster.check()


@on_sqlite
async def test_released_devices_stay_granted_while_in_use(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha", slots=4)
    job_id = await running(cluster, ELASTIC)
    urgent = await cluster.submit(resources={"workers": 2}, priority=10)
    job = await cluster.job(job_id)
    assert (job.world_size, job.generation) == (2, 2), job.reason
    assert alpha.running(job_id).leaving == [2, 3]
    assert (await cluster.job(urgent)).state == "queued"
    await cluster.check()
    await cluster.work()
    assert (await cluster.job(urgent)).state == "starting"
    await cluster.check()
    await cluster.run_until(urgent, "running")
    await cluster.finish(urgent)
    for _ in range(8):
        await cluster.heartbeat(2)
    await cluster.work(2)
    assert (await cluster.job(job_id)).world_size == 4
    await cluster.check()


@on_sqlite
async def test_job_does_not_grow_into_waiting_jobs_needs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=3)
    job_id = await running(cluster, ELASTIC | {"max_workers": 3})
    large = await cluster.submit(resources={"workers": 2})
    await cluster.add_node("beta", slots=1)
    for _ in range(10):
        await cluster.heartbeat(2)
    assert (await cluster.job(large)).state == "queued"
    assert (await cluster.job(job_id)).world_size == 3
    await cluster.check()


@on_sqlite
async def test_attempt_ends_without_remaining_ranks(cluster: SimulatedCluster) -> None:
    nodes = [await cluster.add_node("alpha", slots=1), await cluster.add_node("beta", slots=1)]
    job_id = await running(cluster, {"workers": 2})
    for rank, node in enumerate(sorted(nodes, key=lambda n: n.running(job_id).token)):
        attempt = node.running(job_id)
        attempt.fall(attempt.assignment.launch.ranks[0].rank)
        assert rank < 2
    for node in nodes:
        cluster.send_report(node)
    await cluster.settle()
    generation = (await cluster.job(job_id)).generation
    await cluster.work(4)
    job = await cluster.run_until(job_id, "running")
    assert job.attempt == 2 or generation == 2
    await cluster.check()


@on_sqlite
async def test_left_out_host_is_notified_of_the_end(
    cluster: SimulatedCluster,
) -> None:
    """Ranks that wait there for the others to regroup wait for none any more."""
    nodes = [await cluster.add_node(name, slots=1) for name in ("alpha", "beta", "gamma")]
    job_id = await running(cluster, {"min_workers": 2, "max_workers": 3})
    first, other, last = sorted(nodes, key=lambda n: ranks(n.running(job_id)))
    await cluster.coordinator.nodes.drain(last.node_id)
    await cluster.settle()
    assert ranks(last.running(job_id)) == []

    first.end(first.running(job_id), Outcome.FAILED, failure())
    cluster.send_report(first)
    await cluster.settle()
    assert last.running(job_id).assignment.goal == "stop"

    for attempt in (*first.attempts.values(), *other.attempts.values()):
        attempt.shipped = True
    other.end(other.running(job_id), Outcome.STOPPED)
    cluster.send_report(first)
    cluster.send_report(other)
    await cluster.settle()
    assert (await cluster.coordinator.jobs.attempts(job_id))[0].state == "failed"
    assert not any(token[:2] == (job_id, 1) for token in last.attempts)
    await cluster.check()


async def test_a_stale_token_changes_nothing(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=3)
    job_id = await running(cluster, {"workers": 2})
    node.running(job_id).fall(1)
    await cluster.heartbeat()
    before = await rows(cluster, job_id)
    apply = cluster.coordinator.reconciler._applier
    assert isinstance(apply, Applier)
    old, late = FencingToken(job_id, 1, 1), Reason.of(ReasonCode.SUBMITTED)
    placed = (PlacedNode(node.node_id, "alpha", (0, 2)),)
    assert not await apply.apply(Regroup(old, placed, "cpu", late))
    end = EndAttempt(
        old, AttemptState.RUNNING, AttemptState.FAILED, late, JobState.RUNNING,
        (JobState.RECOVERING,), late,
    )  # fmt: skip
    assert not await apply.apply(end)
    now = FencingToken(job_id, 1, 2)
    assert not await apply.apply(Regroup(now, placed[:0], "cpu", Reason.of(ReasonCode.SUBMITTED)))
    assert await rows(cluster, job_id) == before


async def test_outdated_decision_keeps_only_rank_with_state(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"min_workers": 1, "max_workers": 2})
    before = await rows(cluster, job_id)
    failed = FailedRank(
        rank=0, device_kind="cpu", device_index=0, generation=1, failure=Failure(message="fell")
    )
    async with cluster.db.transaction() as session:
        attempt = await session.get(Attempt, (job_id, 1))
        assert attempt is not None
        outcome = attempt.node_outcomes[node.node_id] | {
            "failed_ranks": [failed.model_dump(mode="json")]
        }
        attempt.node_outcomes = {node.node_id: outcome}
    apply = cluster.coordinator.reconciler._applier
    assert isinstance(apply, Applier)

    def smaller(device: int) -> Regroup:
        placed = (PlacedNode(node.node_id, "alpha", (device,)),)
        return Regroup(FencingToken(job_id, 1, 1), placed, "cpu", Reason.of(ReasonCode.SUBMITTED))

    assert not await apply.apply(smaller(0))
    assert await rows(cluster, job_id) == before
    assert await apply.apply(smaller(1))


async def rows(cluster: SimulatedCluster, job_id: str) -> list[object]:
    async with cluster.db.session() as session:
        attempt = await session.get(Attempt, (job_id, 1))
        assert attempt is not None
        held = await session.execute(select(Grant.node_id, Grant.device_index))
        return [
            attempt.generation,
            attempt.allocation,
            attempt.state,
            sorted(tuple(row) for row in held),
        ]


async def test_the_end_of_an_earlier_generation_counts(cluster: SimulatedCluster) -> None:
    """Its host did not take up the new launch any more."""
    node = await cluster.add_node("alpha", slots=2)
    job_id = await running(cluster, {"workers": 2})
    attempt = node.running(job_id)
    attempt.fall(1)
    cluster.send_report(node)
    node.desire = lambda assignments: None  # type: ignore[method-assign]
    await cluster.settle()
    assert (await cluster.job(job_id)).generation == 2
    node.end(attempt, Outcome.FAILED, failure(5))
    attempt.shipped = True
    cluster.send_report(node)
    await cluster.settle()
    job = await cluster.job(job_id)
    assert job.attempt == 2 or job.state == "recovering", job.reason


@on_sqlite
async def test_job_of_other_strategy_starts_at_free_size(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", slots=2)
    beta = await cluster.add_node("beta", slots=2)
    fsdp = {"parallelism": {"strategy": "fsdp"}}
    job_id = await running(cluster, ELASTIC, **fsdp)
    assert (await cluster.job(job_id)).world_size == 4
    await cluster.disconnect(beta)
    for _ in range(50):
        await cluster.heartbeat(2)
    job = await cluster.run_until(job_id, "running")
    assert (job.attempt, job.world_size) == (2, 2)
    await began(cluster, job_id)
    await cluster.connect(beta, new_agent=False)
    await cluster.settle()
    for _ in range(5):
        await cluster.heartbeat(100)
    assert (await cluster.job(job_id)).attempt == 2, "too soon to pay for a restart"
    for _ in range(3):
        await cluster.heartbeat(100)
    await cluster.work(2)
    job = await cluster.run_until(job_id, "running")
    assert (job.attempt, job.world_size) == (3, 4)
    await cluster.check()


@pytest.mark.parametrize("measured", [False, True])
async def test_next_attempt_sets_step_whichever_rank_reports(
    cluster: SimulatedCluster, measured: bool
) -> None:
    """The attempt before had come further than its checkpoints."""
    await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(resources={"workers": 2})
    await cluster.run_until(job_id, "running")
    ingest = cluster.coordinator.ingest
    await ingest.metrics(job_id, 1, "0-aaaaaaaa", frame(1, table([6], loss=[6.0])))
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    other = frame(1, table([1], rank=1, step_seconds=[1.0]))
    await ingest.metrics(job_id, 2, "1-bbbbbbbb", other)
    if measured:  # and is stored before rank 0's own word that it began
        await ingest.metrics(job_id, 2, "0-bbbbbbbb", frame(1, table([1, 2], loss=[2.0, 1.0])))
    payload = {"generation": 1, "resumed_from": None, "total_steps": 100}
    event = RankEvent.model_validate(
        {"sequence": 1, "time": 5.0, "rank": 0, "kind": "started", "data": payload}
    )
    await cluster.coordinator.rank_events.accept(job_id, 2, "0-bbbbbbbb", [event])
    assert (await cluster.job(job_id)).step == (2 if measured else 0)
