"""Plans of jobs: made on a host, kept, and held against what was measured."""

import pytest
from sqlalchemy import update
from support.cluster.simulated import SimulatedCluster, SimulatedNode, failure, planned

from trainhall.cluster.jobs.plans import JobPlan, PlanMeasured, keep_measured
from trainhall.cluster.jobs.views import Plan
from trainhall.db.documents import Allocation, NodeAllocation, RankPlacement
from trainhall.db.models import Attempt, Job
from trainhall.training.link.failure import Failure
from trainhall.training.link.status import Outcome

AUTO = {"strategy": "auto"}
MEASURED = {"peak_memory_bytes": 3 << 30, "step_seconds": 1.0, "steps": 40}


async def submitted(cluster: SimulatedCluster, workers: int = 2, **more: object) -> str:
    return await cluster.submit(workers, parallelism=AUTO, **more)


def strategies(node: SimulatedNode, job_id: str) -> list[str]:
    return [
        a.assignment.launch.spec.parallelism.strategy
        for token, a in node.attempts.items() if token[0] == job_id
    ]  # fmt: skip


async def plan_of(cluster: SimulatedCluster, job_id: str) -> Plan:
    plan = (await cluster.job(job_id)).plan
    assert plan is not None
    return plan


async def test_auto_plan_of_one_host_runs_on_all(cluster: SimulatedCluster) -> None:
    nodes = [await cluster.add_node(name) for name in ("alpha", "beta")]
    job_id = await submitted(cluster, workers=4)
    job = await cluster.job(job_id)
    assert job.state == "starting"
    assert job.reason.startswith("planning its strategy on node alpha; placed on ")
    assert job.plan is None
    assert job.mesh is None
    asked = nodes[0].running(job_id).assignment.launch.planning
    assert asked is not None
    assert (asked.workers, asked.device.name, asked.device.memory) == (4, "cpu 0", 1 << 30)
    assert asked.device.sharing == 2
    other = nodes[1].running(job_id).assignment.launch
    assert other.planning is None, "two hosts might choose differently"
    await cluster.work(2)
    job = await cluster.job(job_id)
    assert job.reason.startswith("planned: fsdp of a test has the shortest")
    assert job.mesh == {"data": 1, "pipeline": 1, "shard": 4, "tensor": 1, "servers": 0}
    await cluster.run_until(job_id, "running")
    for node in nodes:
        assert strategies(node, job_id) == ["fsdp"]
        prediction = node.running(job_id).assignment.launch.prediction
        assert prediction is not None
        assert prediction.step_seconds == 0.5
    kinds = [e.kind for e in (await cluster.coordinator.jobs.events(job_id)).items]
    assert kinds.count("plan") == 1
    assert ((await cluster.job(job_id)).spec or {})["parallelism"]["strategy"] == "auto"
    await cluster.check()


async def test_auto_plan_measurement_calibrates_the_next(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    for _ in range(2):
        job_id = await submitted(cluster)
        await cluster.run_until(job_id, "running")
        assert (await plan_of(cluster, job_id)).error is None
        await cluster.report_event(
            job_id, "completed", {"steps": 100, "metrics": {}, "measured": MEASURED}
        )
        await cluster.finish(job_id)
        plan = await plan_of(cluster, job_id)
        # The process of a CPU rank has grown by more than its tensors.
        on_cpu = {**MEASURED, "peak_memory_bytes": None}
        assert plan.measured == PlanMeasured.model_validate({**on_cpu, "attempt": 1})
        assert plan.error is not None
        assert (plan.error.peak_memory_bytes, plan.error.step_seconds) == (None, 1.0)
    job_id = await submitted(cluster)
    asked = node.running(job_id).assignment.launch.planning
    assert asked is not None
    factors = asked.calibration
    assert factors.memory == pytest.approx(1.5)
    assert (factors.time, factors.runs) == (2.0, 2)


async def test_nonsense_that_is_measured_is_left_out(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    await cluster.run_until(job_id, "running")
    for measured in (None, "much", {"peak_memory_bytes": -1, "step_seconds": 1.0, "steps": 1}):
        await cluster.report_event(job_id, "paused", {"step": 3, "measured": measured})
    assert (await plan_of(cluster, job_id)).measured is None
    extreme = {"peak_memory_bytes": 1e300, "step_seconds": 1e308, "steps": 1}
    await cluster.report_event(
        job_id, "completed", {"steps": 100, "metrics": {}, "measured": extreme}
    )
    await cluster.finish(job_id)
    asked = node.running(await submitted(cluster)).assignment.launch.planning
    assert asked is not None
    assert asked.calibration.runs == 0


def test_memory_of_tensors_is_compared_on_a_gpu() -> None:
    made_for = {"attempt": 1, "asked": {}, "world_size": 1}
    measured = PlanMeasured(**MEASURED, attempt=1)
    errors = {
        kind: JobPlan(
            **dict(planned("fsdp")), **made_for, device_kind=kind, measured=measured
        ).error
        for kind in ("cuda", "cpu")
    }
    assert errors["cuda"] == pytest.approx({"peak_memory_bytes": 0.5, "step_seconds": 1.0})
    assert errors["cpu"] == {"peak_memory_bytes": None, "step_seconds": 1.0}


def test_measurements_of_an_earlier_plan_are_not_kept() -> None:
    made_for = {"attempt": 2, "asked": {}, "world_size": 1, "device_kind": "cpu"}
    job = Job(plan=JobPlan(**dict(planned("fsdp")), **made_for).model_dump(mode="json"))

    def attempt(number: int, workers: int = 1, kind: str = "cpu") -> Attempt:
        ranks = tuple(RankPlacement(rank, device_kind=kind) for rank in range(workers))
        allocation = Allocation([NodeAllocation("a", ranks=ranks)])
        return Attempt(number=number, world_size=workers, allocation=allocation)

    assert not keep_measured(job, MEASURED, attempt(1)), "by an attempt under another plan"
    assert not keep_measured(job, MEASURED, attempt(2, workers=4)), "an elastic job grew"
    assert not keep_measured(job, MEASURED, attempt(3, kind="cuda"))
    assert keep_measured(job, MEASURED, attempt(2))
    assert job.plan is not None
    assert job.plan["measured"] == MEASURED | {"communication_bytes": None, "attempt": 2}


async def test_auto_plan_failure_fails_the_job(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    why = "planning its strategy failed: nothing fits: fsdp (shard 2) lacks 3.0 GiB"
    node.answer = Failure(message=why, final=True)
    job_id = await submitted(cluster, recovery={"max_restarts": 3})
    await cluster.work(3)
    job = await cluster.job(job_id)
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.reason == why


async def test_restarts_and_resumes_keep_the_plan(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    await cluster.run_until(job_id, "running")
    node.answer = planned("tensor")
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    assert strategies(node, job_id) == ["fsdp"]
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    job = await cluster.job(job_id)
    assert (job.attempt, strategies(node, job_id)) == (3, ["fsdp"])
    events = (await cluster.coordinator.jobs.events(job_id)).items
    assert "keeps its plan: fsdp of a test" in [e.reason for e in events if e.attempt == 3][1]


async def test_auto_plan_is_remade_for_another_world_size(
    cluster: SimulatedCluster,
) -> None:
    node = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    await cluster.run_until(job_id, "running")
    await cluster.save_checkpoint(job_id, 10)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    (saved,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    node.answer = planned("ddp")
    await cluster.coordinator.checkpoints.restore(saved.id, resources={"workers": 1})
    await cluster.settle()
    assert (await cluster.job(job_id)).reason.startswith("planning its strategy on node alpha")
    await cluster.run_until(job_id, "running")
    assert strategies(node, job_id) == ["ddp"]
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.checkpoints.restore(saved.id, parallelism={"strategy": "fsdp"})
    job = await cluster.run_until(job_id, "running")
    assert (strategies(node, job_id), job.plan) == (["fsdp"], None)


async def test_auto_plan_survives_a_coordinator_restart(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    node.work()  # it has the plan, and has not reported it
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    await cluster.connect(node, new_agent=False)
    await cluster.run_until(job_id, "running")
    assert (strategies(node, job_id), (await cluster.job(job_id)).attempt) == (["fsdp"], 1)


async def test_auto_plan_is_repeated_by_forgetful_agent(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    node.work()
    node.attempts.clear()
    await cluster.connect(node)
    await cluster.run_until(job_id, "running")
    assert (strategies(node, job_id), (await cluster.job(job_id)).attempt) == (["fsdp"], 1)


async def test_commands_do_not_wait_for_the_plan(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    for command, state in (("pause", "paused"), ("cancel", "cancelled")):
        job_id = await submitted(cluster)
        await getattr(cluster.coordinator.jobs, command)(job_id)
        job = await cluster.run_until(job_id, state)
        assert job.plan is None
        await cluster.check()


async def test_auto_plan_of_revoked_attempt_is_dropped(cluster: SimulatedCluster) -> None:
    lost = await cluster.add_node("alpha")
    job_id = await submitted(cluster)
    await cluster.disconnect(lost)
    cluster.clock.advance(cluster.options.lost_after_seconds + 1)
    other = await cluster.add_node("beta")
    other.answer = planned("tensor")
    await cluster.run_until(job_id, "running")
    assert strategies(other, job_id) == ["tensor"]
    lost.work()
    await cluster.connect(lost)
    await cluster.work(2)
    assert (await plan_of(cluster, job_id)).summary == "tensor of a test"
    await cluster.check()


NAMED = {"strategy": "fsdp", "predict": True}


async def test_named_strategy_is_predicted_once(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    node.answer = planned("fsdp", shard=2).model_copy(update={"is_named": True})
    job_id = await cluster.submit(2, parallelism=NAMED)
    job = await cluster.job(job_id)
    assert job.reason.startswith("predicting memory and step time on node alpha; placed on ")
    asked = node.running(job_id).assignment.launch.planning
    assert asked is not None
    assert asked.own_strategy
    await cluster.work(2)
    job = await cluster.job(job_id)
    assert job.reason.startswith("predicted: fsdp of a test")
    assert job.plan is not None
    assert job.plan.parallelism == (job.spec or {})["parallelism"], (
        "degrees follow from the workers"
    )
    await cluster.run_until(job_id, "running")
    launch = node.running(job_id).assignment.launch
    assert launch.prediction is not None
    assert launch.spec.parallelism.strategy == "fsdp"
    await cluster.report_event(
        job_id, "completed", {"steps": 100, "metrics": {}, "measured": MEASURED}
    )
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    assert node.running(job_id).assignment.launch.planning is None
    plan = await plan_of(cluster, job_id)
    assert (plan.is_named, plan.attempt) == (True, 1)
    assert plan.measured is not None


async def test_prediction_lost_with_its_attempt_is_repeated(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit(2, parallelism=NAMED)
    assert node.running(job_id).assignment.launch.planning is not None
    await cluster.finish(job_id, Outcome.FAILED, failure())
    job = await cluster.run_until(job_id, "running")
    assert (job.attempt, (await plan_of(cluster, job_id)).attempt) == (2, 2)


@pytest.mark.parametrize("why", ["it needs values", ""])
async def test_strategy_that_cannot_be_predicted_runs(cluster: SimulatedCluster, why: str) -> None:
    node = await cluster.add_node("alpha")
    node.answer = why
    job_id = await cluster.submit(2, parallelism=NAMED)
    await cluster.work(2)
    assert (await cluster.job(job_id)).reason == f"not predicted: {why}"
    await cluster.run_until(job_id, "running")
    assert (await cluster.job(job_id)).plan is None
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    assert node.running(job_id).assignment.launch.planning is None
    await cluster.check()


async def test_prediction_that_is_not_understood_stops_no_job(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    job_id = await cluster.submit(2, parallelism=NAMED)
    await cluster.run_until(job_id, "running")
    async with cluster.db.transaction() as session:
        await session.execute(update(Job).values(plan={"version": 2}))
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    assert node.running(job_id).assignment.launch.prediction is None
