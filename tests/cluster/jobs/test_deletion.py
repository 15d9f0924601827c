"""Deletion of jobs for good: what goes, what stays, and what refuses it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import func, select
from support.cluster.simulated import SimulatedCluster
from support.experiments import SWEEP, trials
from support.storage.frames import frame, table

from trainhall.cluster.alerts.service import Definition, Scope
from trainhall.cluster.alerts.targets import Target, TargetKind
from trainhall.cluster.errors import NotFoundError, WrongStateError
from trainhall.cluster.experiments.spec import ExperimentSpec
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.jobs.deletion import DeletedJobs
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.db.models import Base


async def ended_job(cluster: SimulatedCluster, **checkpoint: Any) -> str:
    """A job that saved a checkpoint, reported metrics and wrote output."""
    if not cluster.nodes:
        await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(checkpoint=checkpoint)
    await cluster.run_until(job_id, "running")
    if checkpoint.get("path"):
        await cluster.save_checkpoint(job_id, 10)
    for sequence in range(1, 6):
        body = frame(sequence, table([sequence], loss=[0.5], accuracy=[0.5]))
        await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
    await cluster.coordinator.ingest.logs(job_id, 1, 0, "stdout", 0, b"a line\n")
    cluster.coordinator.packer.pack_frames = 1
    await cluster.coordinator.packer.pack_once()
    await cluster.finish(job_id)
    return job_id


async def rows(cluster: SimulatedCluster) -> dict[str, int]:
    """Rows of each table that has some, without those of nodes, projects and ledger."""
    async with cluster.db.session() as session:
        counts = {
            name: await session.scalar(select(func.count()).select_from(each)) or 0
            for name, each in Base.metadata.tables.items()
        }
    stay = ("nodes", "devices", "node_events", "device_readings", "ledger", "projects")
    return {name: n for name, n in counts.items() if n and name not in stay}


async def test_deleted_job_leaves_nothing(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await ended_job(cluster, path="/shared")
    before = await rows(cluster)
    assert {"series", "metric_chunks", "metric_frames", "log_chunks", "events"} <= before.keys()
    (location,) = [c.location for c in (await cluster.coordinator.checkpoints.list(job_id)).items]
    files = cluster.folder / "checkpoints" / job_id / "left"
    files.mkdir(parents=True)
    await cluster.coordinator.jobs.delete(job_id)
    with pytest.raises(NotFoundError):
        await cluster.coordinator.jobs.get(job_id)
    left = await rows(cluster)
    assert left.keys() == {
        "deleted_jobs", "series", "metric_chunks", "metric_frames", "log_chunks",
        "orphaned_checkpoints",
    }  # fmt: skip
    # A coordinator that starts anew finishes it, a row at a time, and a disk may refuse first.
    monkeypatch.setattr("trainhall.cluster.jobs.deletion.BATCH_ROWS", 1)

    async def full(_: str) -> None:
        raise OSError("read-only")

    await DeletedJobs(cluster.db, full).sweep()
    assert (await rows(cluster)).keys() == {"deleted_jobs", "orphaned_checkpoints"}
    assert files.exists()
    await cluster.coordinator.housekeep()
    assert not files.parent.exists()
    assert (await rows(cluster)).keys() == {"orphaned_checkpoints"}
    await cluster.heartbeat(1.0)
    await cluster.heartbeat(1.0)
    (node,) = cluster.nodes.values()
    assert node.released == {location}
    assert await rows(cluster) == {}


async def test_other_jobs_keep_everything(cluster: SimulatedCluster) -> None:
    kept = await ended_job(cluster, path="/shared")
    before = await rows(cluster)
    other = await ended_job(cluster, path="/shared")
    await cluster.coordinator.jobs.delete(other)
    await cluster.coordinator.housekeep()
    for _ in range(2):
        await cluster.heartbeat(1.0)
    assert await rows(cluster) == before
    assert (await cluster.coordinator.checkpoints.list(kept)).items


async def test_folder_waits_for_a_node_that_wrote_it(cluster: SimulatedCluster) -> None:
    writer = await cluster.add_node("alpha", 1)
    job_id = await ended_job(cluster, path="/shared")
    other = await cluster.add_node("beta", 1)
    await cluster.disconnect(writer)
    cluster.clock.advance(200.0)
    await cluster.settle()
    await cluster.coordinator.jobs.delete(job_id)
    await cluster.heartbeat(1.0)
    assert other.released == set(), "it may not see the storage"
    await cluster.coordinator.nodes.remove(writer.node_id)
    await cluster.coordinator.housekeep()
    await cluster.heartbeat(1.0)
    assert len(other.released) == 1


async def unfinished(cluster: SimulatedCluster) -> tuple[str, str]:
    return await cluster.submit(), "it is queued; cancel it first"


async def of_experiment(cluster: SimulatedCluster) -> tuple[str, str]:
    await cluster.add_node("alpha", 1)
    wanted = ExperimentSpec.model_validate({**SWEEP, "parallel": 2})
    experiment, _ = await cluster.coordinator.experiments.create(wanted)
    await cluster.settle()
    job_id = str((await trials(cluster, experiment.id))[0].job_id)
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id)
    return job_id, "it is a run of “"


async def test_experiment_says_that_a_job_was_deleted(cluster: SimulatedCluster) -> None:
    job_id, _ = await of_experiment(cluster)
    experiment = (await cluster.coordinator.experiments.list()).items[0].id
    await cluster.coordinator.experiments.cancel(experiment)
    second = str((await trials(cluster, experiment))[1].job_id)
    await cluster.run_until(second, "cancelled")
    await cluster.settle()
    for each in (job_id, second):
        await cluster.coordinator.jobs.delete(each)
    completed, cancelled, *_ = await trials(cluster, experiment)
    assert (completed.job_id, completed.state) == (None, "completed")
    assert completed.reason == "its job was deleted"
    assert "cancelled" in cancelled.reason


async def on_a_lost_node(cluster: SimulatedCluster) -> tuple[str, str]:
    node = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.disconnect(node)
    await cluster.coordinator.jobs.cancel(job_id)
    cluster.clock.advance(200.0)
    await cluster.run_until(job_id, "cancelled")
    return job_id, "a node has not reported yet that its ranks have ended"


@pytest.mark.parametrize("make", [unfinished, of_experiment, on_a_lost_node])
async def test_needed_job_is_not_deleted(
    cluster: SimulatedCluster, make: Callable[[SimulatedCluster], Awaitable[tuple[str, str]]]
) -> None:
    job_id, why = await make(cluster)
    with pytest.raises(WrongStateError, match=why):
        await cluster.coordinator.jobs.delete(job_id)
    job = await cluster.coordinator.jobs.get(job_id)
    assert Command.DELETE not in job.allowed_commands
    assert why.lower() in job.refused_commands[Command.DELETE].lower()
    (listed,) = [j for j in (await cluster.coordinator.jobs.list()).items if j.id == job_id]
    assert listed.refused_commands == job.refused_commands


async def test_alert_of_a_deleted_job_is_disabled(cluster: SimulatedCluster) -> None:
    job_id = await ended_job(cluster)
    alert = await cluster.coordinator.alerts.create(
        Definition(
            name="mine", on=(Condition.JOB_FAILED,), target=Target(TargetKind.BROWSER),
            scope=Scope("job", job_id),
        )
    )  # fmt: skip
    await cluster.coordinator.jobs.delete(job_id)
    found = await cluster.coordinator.alerts.get(alert.id)
    assert (found.enabled, found.reason) == (False, "its job was deleted")
