"""The recorded queue, read from both databases."""

from datetime import timedelta

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.queue.durations import Assumed, Completed, Durations, describe
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
        ("project", "default", 1),
        ("project", "vision", 1),
        ("user", "maria", 1),
    ]


async def test_jobs_of_earlier_days_are_not_read(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    early = await cluster.submit()
    await cluster.run_until(early, "running")
    await cluster.finish(early)
    cluster.clock.advance(86400 * 2)
    waits = await cluster.submit()
    now = cluster.clock.now()
    workload = await cluster.db.read(
        lambda connection: load_workload(connection, now - timedelta(days=1), now)
    )
    assert (len(workload.work), workload.left_out) == (1, 0)
    workload = await cluster.db.read(
        lambda connection: load_workload(connection, now - timedelta(days=3), now)
    )
    assert [work.job.id for work in workload.work] == [early, waits]


async def test_job_that_waits_for_more_devices_is_replayed(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    ran = await cluster.submit(name="ran")
    await cluster.run_until(ran, "running")
    await cluster.heartbeat(600)
    await cluster.finish(ran)
    await cluster.submit(name="large", workers=2)
    await cluster.submit(name="huge", workers=9)
    found = await cluster.coordinator.what_if.compare(Change(add=[AddedNodes(1, 1)]), 30)
    assert (found.jobs, found.left_out, found.never_ran) == (3, 0, 2)
    assert (found.before.never_started, found.before.first_starts) == (2, 0)
    assert (found.after.never_started, found.after.first_starts) == (1, 1)
    assert found.assumptions[-1].startswith("2 jobs that never ran: 10 min")
    assert found.assumptions[-1].endswith(", the median of 1 completed job")


def test_durations_are_those_of_similar_jobs() -> None:
    durations = Durations([
        Completed("gpt", "maria", 60.0), Completed("gpt", "bob", 120.0),
        Completed("bert", "maria", 600.0), Completed("vit", None, 9.0),
    ])  # fmt: skip
    gpt, of_maria, of_all = [
        durations.of(*job) for job in (("gpt", "bob"), ("new", "maria"), ("new", "eve"))
    ]
    assert gpt == (90.0, "the median of 2 completed jobs named “gpt”")
    assert of_maria == (330.0, "the median of 2 completed jobs of user maria")
    assert of_all == (90.0, "the median of 4 completed jobs")
    assert Durations([]).of("new", None) == (3600.0, "as no job has completed")
    assert describe([gpt, of_maria, gpt]) == [
        "2 jobs that never ran: 1 min 30 s, the median of 2 completed jobs named “gpt”",
        "1 job that never ran: 5 min 30 s, the median of 2 completed jobs of user maria",
    ]
    many = [Assumed(float(number), "x") for number in range(7)]
    assert describe(many)[-1] == "2 more that never ran: medians of jobs like them"


async def test_unknown_node_cannot_be_removed(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    with pytest.raises(InvalidValueError, match="there are: alpha"):
        await cluster.coordinator.what_if.compare(Change(remove=frozenset({"beta"})), 30)
    found = await cluster.coordinator.what_if.compare(Change(remove=frozenset({"alpha"})), 30)
    assert (found.jobs, found.before.waits, found.after.devices) == (0, None, {})
