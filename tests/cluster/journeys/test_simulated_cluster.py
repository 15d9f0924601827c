"""The reconciler, the gateway and the services together, against simulated nodes."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

from support.cluster.agent_process import until
from support.cluster.simulated import SimulatedCluster, failure, spec, stalled
from support.database import on_sqlite

from trainhall.db.models import Node
from trainhall.monitoring.prometheus import REGISTRY
from trainhall.training.link.status import Outcome


async def fail(cluster: SimulatedCluster, job_id: str, code: int = 1) -> None:
    """The job's ranks fail, and the pause before its restart passes."""
    await cluster.finish(job_id, Outcome.FAILED, failure(code))
    cluster.clock.advance(5)
    await cluster.heartbeat()


def _queue_waits() -> tuple[float, float]:
    """The number of jobs that left the queue in this process, and the seconds they waited."""
    count, total = (
        REGISTRY.get_sample_value(f"trainhall_queue_wait_seconds_{name}") or 0.0
        for name in ("count", "sum")
    )
    return count, total


async def test_a_job_runs_to_its_end(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(workers=2)
    assert (await cluster.job(job_id)).state == "starting"
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id)
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("completed", 1)
    assert await cluster.history(job_id) == ["queued", "starting", "running", "completed"]
    assert len(node.launched) == 1
    assert not node.attempts, "it is still in the node's desired state"
    assert all(d.job_id is None for d in await cluster.coordinator.nodes.devices())
    await cluster.check()


async def test_wait_in_queue_is_measured_once(cluster: SimulatedCluster) -> None:
    before = _queue_waits()
    job_id = await cluster.submit()
    cluster.clock.advance(20)
    await cluster.add_node("alpha")
    await cluster.run_until(job_id, "running")
    started = _queue_waits()
    assert started == (before[0] + 1, before[1] + 20)
    await fail(cluster, job_id)  # a restart does not wait in the queue
    await cluster.run_until(job_id, "running")
    assert _queue_waits() == started


async def test_a_failure_restarts_until_none_is_left(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 2})
    for restart, code in ((1, 3), (2, 4)):
        await cluster.run_until(job_id, "running")
        await fail(cluster, job_id, code)
        job = await cluster.job(job_id)
        assert job.attempt == restart + 1, job.reason
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id, Outcome.FAILED, failure(3))
    job = await cluster.job(job_id)
    assert job.state == "failed"
    assert "exit code 3" in job.reason
    assert "max_restarts is 2" in job.reason
    attempts = await cluster.coordinator.jobs.attempts(job_id)
    assert [a.state for a in attempts] == ["failed"] * 3
    assert attempts[0].failure is not None
    assert attempts[0].failure.exit_code == 3
    assert (await cluster.history(job_id))[-4:] == ["recovering", "starting", "running", "failed"]


@on_sqlite
async def test_repeated_failure_without_progress_is_final(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 3})
    for _ in range(2):
        await cluster.run_until(job_id, "running")
        await cluster.finish(job_id, Outcome.FAILED, failure(2))
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("failed", 2)
    assert job.reason.endswith(
        "; not retried: it failed twice with the same error before its first step"
    )


@on_sqlite
async def test_saved_step_counts_as_progress(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 1})
    for step in (10, 20, 30):
        await cluster.run_until(job_id, "running")
        await cluster.save_checkpoint(job_id, step)
        await fail(cluster, job_id)
    assert (await cluster.job(job_id)).attempt == 4


@on_sqlite
async def test_new_steps_renew_the_restarts(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 1})
    for step in (10, 20, 30):
        await cluster.run_until(job_id, "running")
        await cluster.report_event(job_id, "completed", {"steps": step, "metrics": {}})
        await fail(cluster, job_id)
    assert (await cluster.job(job_id)).attempt == 4


@on_sqlite
async def test_progress_after_a_restore_counts_from_there(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit(
        recovery={"max_restarts": 1}, checkpoint={"path": "/shared", "keep_latest": 9}
    )
    await cluster.run_until(job_id, "running")
    for step in (10, 100):
        await cluster.save_checkpoint(job_id, step)
    await cluster.report_event(job_id, "completed", {"steps": 100})
    await cluster.finish(job_id)
    _, older = (await cluster.coordinator.checkpoints.list(job_id)).items
    restored = await cluster.coordinator.checkpoints.restore(older.id)
    assert restored.step == 10
    for step in (20, 30, 40):
        await cluster.run_until(job_id, "running")
        await cluster.save_checkpoint(job_id, step)
        await fail(cluster, job_id)
    assert (await cluster.job(job_id)).attempt == 5


@on_sqlite
async def test_save_of_a_lost_attempt_counts_as_progress(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 1}, checkpoint={"path": "/shared"})
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    await cluster.save_checkpoint(job_id, 10)
    await cluster.disconnect(alpha)
    cluster.clock.advance(cluster.options.lost_after_seconds + 1)
    await cluster.settle()
    await cluster.connect(alpha)
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id, Outcome.FAILED, failure())
    assert (await cluster.job(job_id)).attempt == 4


async def test_resume_continues_from_the_paused_save(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    paused = await cluster.coordinator.jobs.pause(job_id)
    assert paused.state == "pausing"
    await cluster.settle()
    name = await cluster.save_checkpoint(job_id, 40)
    await cluster.run_until(job_id, "paused")
    assert all(d.job_id is None for d in await cluster.coordinator.nodes.devices())
    ran = (await cluster.job(job_id)).ran_seconds
    await cluster.heartbeat(2000)
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.settle()
    job = await cluster.run_until(job_id, "running")
    assert job.attempt == 2
    assert job.started_at is not None
    assert job.running_since is not None
    assert (job.running_since - job.started_at).total_seconds() >= 2000
    assert job.ran_seconds == ran < 2000, "the pause is no time in which it ran"
    (node,) = cluster.nodes.values()
    launch = node.running(job_id).assignment.launch
    assert launch.checkpoint.resume == [name]
    assert launch.checkpoint.folder == f"/shared/{job_id}"


@on_sqlite
async def test_pause_waits_for_its_checkpoint_upload(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.settle()
    node.end(node.running(job_id), Outcome.PAUSED)
    await cluster.heartbeat(60)
    assert (await cluster.job(job_id)).state == "pausing"
    await cluster.work()
    assert (await cluster.job(job_id)).state == "paused"


@on_sqlite
async def test_cancel_of_a_running_job(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    assert (await cluster.coordinator.jobs.cancel(job_id)).state == "cancelling"
    await cluster.settle()
    assert node.goals[-1] == "stop"
    await cluster.run_until(job_id, "cancelled")
    assert (await cluster.coordinator.jobs.cancel(job_id)).state == "cancelled", "repeated"


async def test_second_host_gets_the_rendezvous_of_the_first(cluster: SimulatedCluster) -> None:
    alpha, beta = await cluster.add_node("alpha", 2), await cluster.add_node("beta", 2)
    job_id = await cluster.submit(workers=3)
    await cluster.run_until(job_id, "running")
    first, second = alpha.running(job_id), beta.running(job_id)
    if first.assignment.launch.node_rank:
        first, second = second, first
    assert [p.rank for p in first.assignment.launch.ranks] == [0, 1]
    assert [p.rank for p in second.assignment.launch.ranks] == [2]
    assert first.assignment.launch.rendezvous is None
    assert second.assignment.launch.rendezvous is not None
    await cluster.finish(job_id)
    assert (await cluster.job(job_id)).state == "completed"


@on_sqlite
async def test_one_failing_host_stops_the_others(cluster: SimulatedCluster) -> None:
    alpha, beta = await cluster.add_node("alpha", 1), await cluster.add_node("beta", 1)
    job_id = await cluster.submit(workers=2, recovery={"max_restarts": 0})
    await cluster.run_until(job_id, "running")
    alpha.end(alpha.running(job_id), Outcome.FAILED, failure())
    cluster.send_report(alpha)
    await cluster.settle()
    assert beta.goals[-1] == "stop"
    assert (await cluster.job(job_id)).state == "running"
    await cluster.work(2)
    job = await cluster.job(job_id)
    assert job.state == "failed"
    assert "alpha" in job.reason
    assert "bad luck" in job.reason


async def test_hang_over_hosts_is_decided_while_it_lasts(
    cluster: SimulatedCluster,
) -> None:
    nodes = [await cluster.add_node(name, slots=1) for name in ("alpha", "beta")]
    job_id = await cluster.submit(workers=2)
    await cluster.run_until(job_id, "running")
    await cluster.heartbeat()
    first, second = (node.running(job_id) for node in nodes)
    first.stall = stalled(0, parts=3)
    await cluster.heartbeat()
    first.stall, second.stall = None, stalled(1, parts=1)
    await cluster.heartbeat()
    goal = second.assignment.goal
    assert goal == "run", "the first has gone on meanwhile"
    first.stall = stalled(0, parts=3)
    await cluster.heartbeat()
    assert second.assignment.goal == "stop"
    (attempt,) = await cluster.coordinator.jobs.attempts(job_id)
    assert attempt.reason.startswith("hang: no host's ranks took a step within 30 s; rank 1 (node")


async def test_attempt_of_lost_node_is_fenced_and_replaced(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    beta = await cluster.add_node("beta", 1)
    await cluster.disconnect(alpha)
    for _ in range(10):
        await cluster.heartbeat(2)
    states = {n.name: n.state for n in (await cluster.coordinator.nodes.list()).items}
    assert states == {"alpha": "suspect", "beta": "ready"}
    for _ in range(40):
        await cluster.heartbeat(2)
    job = await cluster.run_until(job_id, "running")
    assert job.attempt == 2
    assert beta.running(job_id)
    assert [t[0] for t in alpha.attempts] == [job_id], "it still runs there, unheard"
    first, second = await cluster.coordinator.jobs.attempts(job_id)
    assert (first.state, second.state) == ("lost", "running")
    (device,) = (await cluster.coordinator.nodes.get(alpha.node_id)).devices
    assert (device.job_id, device.job_name) == (None, None), "the job would not notice its removal"
    waiting = await cluster.submit()
    assert (await cluster.job(waiting)).state == "queued"

    await cluster.connect(alpha, new_agent=False)
    await cluster.settle()
    assert (job_id, 1, 1) not in alpha.attempts, "not ended when its node reported again"
    await cluster.work(2)
    assert (await cluster.job(waiting)).state == "running"
    await cluster.check()


async def test_ending_job_names_the_node_it_waits_for(cluster: SimulatedCluster) -> None:
    alpha, beta = await cluster.add_node("alpha", 1), await cluster.add_node("beta", 1)
    job_id = await cluster.submit(2)
    await cluster.run_until(job_id, "running")
    await cluster.disconnect(beta)
    lost_at = cluster.clock.now() + timedelta(seconds=cluster.options.lost_after_seconds)
    alpha.end(alpha.running(job_id), Outcome.FAILED, failure())
    for _ in range(10):
        await cluster.heartbeat(2)
    job = await cluster.job(job_id)
    assert (job.state, job.reason_code) == ("running", "awaiting_node")
    at = re.search(
        r"^waiting until node beta reports again or is lost \(at (\S+) UTC\); the other ranks",
        job.reason,
    )
    assert at is not None
    shown = datetime.strptime(at[1], "%H:%M:%S").replace(
        year=lost_at.year, month=lost_at.month, day=lost_at.day, tzinfo=UTC
    )
    assert abs((shown - lost_at).total_seconds()) <= 2
    for _ in range(40):
        await cluster.heartbeat(2)
    (attempt, *_) = await cluster.coordinator.jobs.attempts(job_id)
    assert attempt.state == "lost"
    await cluster.check()


async def test_restarted_coordinator_continues_jobs(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 2)
    running, starting = await cluster.submit(), await cluster.submit()
    await cluster.run_until(running, "running")
    await cluster.stop_coordinator()
    cluster.clock.advance(600)
    cluster.start_coordinator()
    await cluster.settle()
    for _ in range(5):
        cluster.clock.advance(2)
        await cluster.settle()
    (view,) = (await cluster.coordinator.nodes.list()).items
    assert view.state == "ready", "ten minutes without a coordinator are not the node's silence"
    await cluster.connect(node, new_agent=False)
    await cluster.work(3)
    for job_id in (running, starting):
        await cluster.finish(job_id)
        job = await cluster.job(job_id)
        assert (job.state, job.attempt) == ("completed", 1)
    await cluster.check()


async def test_attempt_with_lost_data_is_not_relaunched(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    node.attempts.clear()
    await cluster.connect(node)
    await cluster.exchanged()
    assert (await cluster.job(job_id)).state == "running", "one report alone proves nothing"
    await cluster.settle()
    job = await cluster.job(job_id)
    assert job.attempt == 2
    (first, _) = await cluster.coordinator.jobs.attempts(job_id)
    assert "no longer knows attempt 1" in first.reason
    await cluster.check()


async def test_a_removed_node_drains(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    beta = await cluster.add_node("beta", 1)
    view = await cluster.coordinator.nodes.remove(alpha.node_id)
    assert view is not None
    assert view.state == "draining"
    await cluster.settle()
    assert alpha.goals[-1] == "pause"
    await cluster.work(4)
    assert beta.running(job_id)
    assert (await cluster.job(job_id)).attempt == 2
    assert [n.name for n in (await cluster.coordinator.nodes.list()).items] == ["beta"]
    assert alpha.channel is not None
    assert alpha.channel.closed is not None
    assert "removed" in alpha.channel.closed[1]


async def test_stopped_agent_gets_no_work(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit(recovery={"max_restarts": 0})
    await cluster.run_until(job_id, "running")
    node.end(node.running(job_id), Outcome.PAUSED)
    report = node.report(cluster.clock)
    report.stopping = True
    report.assignments[0].agent_stopped = report.assignments[0].shipped = True
    assert node.channel is not None
    node.channel.to_gateway.put_nowait(report.model_dump_json())
    await cluster.exchanged()
    await cluster.coordinator.reconciler.settle()
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("recovering", 1)
    assert "the agent on alpha was stopped; the ranks saved first" in job.reason
    (row,) = (await cluster.coordinator.nodes.list()).items
    assert (row.state, row.reason) == (
        "suspect", "its agent was stopped; it gets no new work until the agent restarts"
    )  # fmt: skip
    await cluster.disconnect(node)
    node.attempts.clear()
    await cluster.connect(node)
    await cluster.run_until(job_id, "running")
    assert (await cluster.job(job_id)).attempt == 2
    await cluster.check()


async def test_agent_that_stops_leaves_its_ranks(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 2)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    report = node.report(cluster.clock)
    report.stopping = True
    assert node.channel is not None
    node.channel.to_gateway.put_nowait(report.model_dump_json())
    await cluster.exchanged()
    await cluster.disconnect(node)
    waiting = await cluster.submit()
    await cluster.coordinator.reconciler.settle()
    (row,) = (await cluster.coordinator.nodes.list()).items
    assert (row.state, row.reason_code) == ("suspect", "agent_offline")
    assert (await cluster.job(job_id)).state == "running"
    assert (await cluster.job(waiting)).state == "queued"
    await cluster.connect(node)
    await cluster.run_until(waiting, "running")
    (row,) = (await cluster.coordinator.nodes.list()).items
    assert row.state == "ready"
    assert (await cluster.job(job_id)).attempt == 1
    await cluster.check()


@on_sqlite
async def test_waiting_jobs_have_reasons(cluster: SimulatedCluster) -> None:
    unplaced = await cluster.submit(workers=2)
    assert "no node has joined" in (await cluster.job(unplaced)).reason
    await cluster.add_node("alpha", 2)
    await cluster.work(2)
    assert (await cluster.job(unplaced)).state == "running"
    second = await cluster.submit(workers=2)
    third = await cluster.submit(workers=1)
    large = await cluster.submit(workers=8)
    queue = (await cluster.coordinator.queue.list()).items
    assert [(e.job_id, e.position) for e in queue] == [(second, 1), (third, 2), (large, 3)]
    assert queue[0].reason == (
        f"needs 2 CPU slots; 0 of 2 are free, “test” ({unplaced}) holds 2; "
        f"start time unknown: no end is known for “test” ({unplaced}) "
        "(it reports no total steps, and no job of its name or user has completed)"
    )
    assert f"waiting for “test” ({second}, 2 CPU slots), ahead in the queue" in queue[1].reason
    assert "needs 8 CPU slots; the whole cluster has 2 CPU slots" in queue[2].reason
    assert queue[0].needs.count == 2
    for entry in queue:
        assert entry.job_id is not None
        assert entry.reason.startswith((await cluster.job(entry.job_id)).reason)
    urgent = await cluster.submit(workers=1, priority=5)
    assert (await cluster.coordinator.queue.list()).items[0].job_id == urgent


@on_sqlite
async def test_lost_message_is_repeated(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    assert node.channel is not None
    view, _ = await cluster.coordinator.jobs.submit(spec())
    await cluster.coordinator.reconciler.settle()
    await cluster.exchanged()
    node.channel.to_node.clear()
    for _ in range(3):
        await cluster.heartbeat(2)
    assert node.running(view.id)
    await cluster.run_until(view.id, "running")


@on_sqlite
async def test_the_newest_agent_wins(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    first = node.channel
    assert first is not None
    node.channel = node.task = None
    await cluster.connect(node)
    await cluster.settle()
    assert first.closed is not None
    assert first.closed[0] == 4409
    node.agents -= 1
    old_task, old_channel = node.task, node.channel
    node.task = node.channel = None
    await cluster.connect(node, new_agent=False)
    assert node.channel is not None
    await cluster.exchanged()
    assert node.channel.closed is not None
    assert "took over" in node.channel.closed[1]
    assert old_channel is not None
    assert old_channel.closed is None
    old_channel.drop()
    assert old_task is not None
    await old_task


@on_sqlite
async def test_heartbeat_is_recorded_on_arrival(cluster: SimulatedCluster) -> None:
    """And not when what it said before is stored: the database may take its time."""
    node = await cluster.add_node("alpha")
    assert node.channel is not None
    async with cluster.db.transaction() as session:
        await session.get(Node, node.node_id, with_for_update=True)
        for slots in (3, 4, 5):  # the first is being stored, and the last is what counts
            node.slots = slots
            cluster.clock.advance(60)
            cluster.send_report(node)
            await until("the report to arrive", node.channel.to_gateway.empty)
        cluster.clock.advance(40)
        assert cluster.coordinator.heartbeats.seconds_since(node.node_id) == 40
    await cluster.settle()
    view = await cluster.coordinator.nodes.get(node.node_id)
    assert (view.state, len(view.devices)) == ("suspect", 5)


async def test_last_report_before_disconnect_is_stored(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    async with cluster.db.transaction() as session:
        await session.get(Node, node.node_id, with_for_update=True)
        for slots in (3, 4):
            node.slots = slots
            cluster.send_report(node)
            await asyncio.sleep(0)
        assert node.channel is not None
        node.channel.drop()
    await cluster.disconnect(node)
    assert len((await cluster.coordinator.nodes.get(node.node_id)).devices) == 4


@on_sqlite
async def test_job_reports_pending_uploads(cluster: SimulatedCluster) -> None:
    """It holds its devices; the coordinator's own disk may be full, or the link slow."""
    node = await cluster.add_node("alpha")
    job = await cluster.submit(1)
    await cluster.run_until(job, "running")
    running = node.running(job)
    node.end(running, Outcome.COMPLETED)
    before = (await cluster.coordinator.jobs.events(job)).items
    for _ in range(3):
        await cluster.heartbeat(20)
    view = await cluster.job(job)
    reason = "its ranks have ended; node alpha still uploads what they saved"
    assert (view.state, view.reason) == ("running", reason)
    assert (await cluster.coordinator.jobs.events(job)).items == before
    running.shipped = True
    await cluster.heartbeat()
    view = await cluster.job(job)
    assert (view.state, view.reason) == ("completed", "completed")


async def test_lost_disk_starts_no_ended_ranks_again(
    cluster: SimulatedCluster,
) -> None:
    """The host is set up again while its part of the attempt waits for another's."""
    alpha, _ = [await cluster.add_node(name, 1) for name in ("alpha", "beta")]
    job = await cluster.submit(2)
    await cluster.run_until(job, "running")
    alpha.end(alpha.running(job), Outcome.COMPLETED)
    cluster.send_report(alpha)
    await cluster.settle()
    await cluster.disconnect(alpha)
    alpha.attempts.clear()
    await cluster.connect(alpha)
    await cluster.settle()
    for _ in range(3):
        await cluster.heartbeat(5)
        await cluster.work(1)
    assert alpha.launched == [(job, 1, 1)]
    await cluster.check()
