"""Jobs that make room for others, and quotas, with reconciler, services and simulated nodes."""

import asyncio
from dataclasses import replace

from support.cluster.simulated import SimulatedCluster, spec

from trainhall.cluster.quotas import Quotas


async def test_preempted_job_saves_and_resumes_afterwards(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    low = await cluster.submit(workers=2)
    await cluster.run_until(low, "running")
    urgent = await cluster.submit(workers=2, priority=3)
    await cluster.run_until(urgent, "running")
    job = await cluster.job(low)
    why = f"preempted by “test” ({urgent}), which has priority 3"
    assert job.state == "recovering"
    assert job.reason == (
        f"attempt 1: {why}; needs 2 CPU slots; 0 of 2 are free, “test” ({urgent}) holds 2"
    )
    (first,) = await cluster.coordinator.jobs.attempts(low)
    assert (first.state, first.reason) == ("paused", why)
    events = await cluster.coordinator.jobs.events(low)
    assert why in [event.reason for event in events.items]
    await cluster.finish(urgent)
    await cluster.run_until(low, "running")
    assert (await cluster.job(low)).attempt == 2
    assert await cluster.history(low) == [
        "queued", "starting", "running", "recovering", "starting", "running",
    ]  # fmt: skip
    await cluster.check()


async def test_dry_run_forecasts_the_start(cluster: SimulatedCluster) -> None:
    asked = cluster.coordinator.queue
    outlook = (await asked.forecast(spec(workers=2))).outlook
    assert outlook.when == "never"
    assert "no node has joined" in outlook.reason
    await cluster.add_node("alpha", 2)
    outlook = (await asked.forecast(spec(workers=2))).outlook
    assert (outlook.when, outlook.position) == ("now", 1)
    assert outlook.reason == "placed on 2 CPU slots of alpha"
    running = await cluster.submit(workers=1)
    await cluster.run_until(running, "running")
    outlook = (await asked.forecast(spec(workers=2))).outlook
    assert (outlook.when, outlook.position, outlook.expected_at) == ("later", 1, None)
    assert f"no end is known for “test” ({running})" in outlook.reason
    assert (await asked.list()).total == 0, "nothing was submitted"


async def test_dry_run_waits_for_nodes_after_restart(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha", 4)
    assert (await cluster.coordinator.queue.forecast(spec(workers=3))).outlook.when == "now"
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    async with asyncio.TaskGroup() as group:
        forecast = group.create_task(cluster.coordinator.queue.forecast(spec(workers=3)))
        node.slots = 2
        await cluster.connect(node)
    outlook = forecast.result().outlook
    assert outlook.when == "never"
    assert "the whole cluster has 2 CPU slots" in outlook.reason
    assert forecast.result().shortage == outlook.reason


async def test_dry_run_ignores_absent_nodes(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    cluster.clock.advance(10)
    async with asyncio.timeout(5):
        outlook = (await cluster.coordinator.queue.forecast(spec(workers=5))).outlook
    assert "the whole cluster has 4 CPU slots" in outlook.reason


async def test_scheduling_reads_quotas_and_selectors_from_options(
    cluster: SimulatedCluster,
) -> None:
    cluster.coordinator.queue._options = replace(
        cluster.options, quotas=Quotas(projects={"vision": 1})
    )
    await cluster.add_node("alpha", 2)
    await cluster.add_node("beta", 2)
    outlook = (await cluster.coordinator.queue.forecast(spec(workers=2, project="vision"))).outlook
    assert "quota of project vision is 1 device" in outlook.reason
    elsewhere = spec(resources={"workers": 1, "device": "cpu", "selector": {"rack": "c"}})
    assert (
        "no node has rack=c" in (await cluster.coordinator.queue.forecast(elsewhere)).outlook.reason
    )
    wide = spec(resources={"workers": 3, "device": "cpu", "one_host": True})
    outlook = (await cluster.coordinator.queue.forecast(wide)).outlook
    assert "the largest host has 2 CPU slots" in outlook.reason
