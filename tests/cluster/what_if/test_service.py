"""The recorded queue, read from both databases."""

from datetime import timedelta

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.what_if.change import AddedNodes, Change
from trainhall.cluster.what_if.workload import load_workload


async def test_recorded_jobs_are_replayed(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    jobs = [await cluster.submit(user="maria"), await cluster.submit(project="vision")]
    never = await cluster.submit(workers=9)
    for job_id in jobs:
        await cluster.run_until(job_id, "running")
        await cluster.heartbeat(60)
        await cluster.finish(job_id)
    await cluster.coordinator.jobs.cancel(never)
    change = Change(add=[AddedNodes(1, 1)])
    found = await cluster.coordinator.what_if.compare(change, 30)
    assert (found.jobs, found.left_out, found.is_cut) == (2, 1, False)
    assert found.recorded is not None
    assert found.before.waits is not None
    assert found.after.waits is not None
    assert found.recorded.max >= 60
    assert abs(found.before.waits.max - found.recorded.max) < 5
    assert found.after.waits.max < 5
    assert [(each.kind, each.name, each.jobs) for each in found.accounts] == [
        ("project", "vision", 1),
        ("user", "maria", 1),
    ]


async def test_jobs_of_earlier_days_are_not_read(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    early = await cluster.submit()
    await cluster.run_until(early, "running")
    await cluster.finish(early)
    cluster.clock.advance(86400 * 2)
    await cluster.submit()
    now = cluster.clock.now()
    workload = await cluster.db.read(
        lambda connection: load_workload(connection, now - timedelta(days=1), now)
    )
    assert (len(workload.work), workload.never_ran) == (0, 1)
    workload = await cluster.db.read(
        lambda connection: load_workload(connection, now - timedelta(days=3), now)
    )
    assert [work.job.id for work in workload.work] == [early]


async def test_unknown_node_cannot_be_removed(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    with pytest.raises(InvalidValueError, match="there are: alpha"):
        await cluster.coordinator.what_if.compare(Change(remove=frozenset({"beta"})), 30)
    found = await cluster.coordinator.what_if.compare(Change(remove=frozenset({"alpha"})), 30)
    assert (found.jobs, found.before.waits, found.after.devices) == (0, None, {})
