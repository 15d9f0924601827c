"""Benchmarks and scaling studies on a simulated cluster, on both databases."""

import csv
import io
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from support.cluster.simulated import SimulatedCluster
from support.database import on_sqlite
from support.experiments import read, trials
from support.storage.frames import frame, table

from trainhall.cluster.experiments import analyses
from trainhall.cluster.experiments.analysis.views import Analysis, BenchmarkRow
from trainhall.cluster.experiments.benchmark.analyze import analyze_benchmark
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.spec import ExperimentError, validate_experiment
from trainhall.db.accounts import Project
from trainhall.db.documents import NodeAllocation, RankPlacement
from trainhall.db.models import Attempt, DeviceReading, Node

STRATEGY, WORKERS = "parallelism.strategy", "resources.workers"
BENCHMARK: dict[str, Any] = {
    "name": "strategies",
    "kind": "benchmark",
    "job": {
        "name": "speed",
        "task": {"name": "synthetic"},
        "training": {"steps": 100, "global_batch_size": 64},
        "recovery": {"max_restarts": 0},
    },
    "space": {WORKERS: [1, 2, 3]},
    "baseline": {WORKERS: 1},
    "warmup_steps": 2,
}


async def create(cluster: SimulatedCluster, **changes: Any) -> str:
    spec = validate_experiment({**BENCHMARK, **changes})
    view, _ = await cluster.coordinator.experiments.create(spec)
    await cluster.settle()
    return view.id


@on_sqlite
async def test_analysis_leaves_the_event_loop_free(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals of hundreds of cells take a third of a second."""
    threads = []

    def analyze(*arguments: Any) -> Analysis:
        threads.append(threading.current_thread())
        return analyze_benchmark(*arguments)

    monkeypatch.setitem(analyses._BY_KIND, "benchmark", analyze)
    await cluster.coordinator.analyses.analyze(await create(cluster))
    assert threads != [threading.current_thread()]


async def run(cluster: SimulatedCluster, job_id: str, seconds: list[float], first: int = 1) -> None:
    """The job's ranks take a step in each of these times; half of it they wait for each other, and
    communicate in a quarter besides. Then they complete."""
    await cluster.run_until(job_id, "running")
    cluster.clock.advance(120)
    await step(cluster, job_id, seconds, first)
    measured = {
        "peak_memory_bytes": 2**30, "step_seconds": 1.0, "steps": 5, "communication_bytes": 6000,
    }  # fmt: skip
    data = {"steps": 5, "metrics": {}, "measured": measured}
    await cluster.report_event(job_id, "completed", data)
    await cluster.finish(job_id)


async def step(
    cluster: SimulatedCluster, job_id: str, seconds: list[float], first: int = 1
) -> None:
    attempt = (await cluster.run_until(job_id, "running")).attempt
    points = table(
        range(first, first + len(seconds)),
        step_seconds=seconds,
        samples_per_second=[64 / each for each in seconds],
        communication_seconds=[each / 2 for each in seconds],
        communication_hidden_seconds=[each / 4 for each in seconds],
        peak_memory_bytes=[2.0**30] * len(seconds),
        loss=[0.5] * len(seconds),
    )
    await cluster.coordinator.ingest.metrics(
        job_id, attempt, f"{attempt - 1}-aaaaaaaa", frame(1, points)
    )


async def running(cluster: SimulatedCluster, experiment: str) -> Any:
    """The one run that has a job which has not ended."""
    (found,) = [
        trial
        for trial in await trials(cluster, experiment)
        if trial.job_id and trial.state not in ("completed", "failed")
    ]
    return found


async def run_all(
    cluster: SimulatedCluster, experiment: str, speeds: dict[int, float]
) -> list[tuple[int, int]]:
    """Run all to the end, one after the other; return them in this order."""
    order = []
    while (await read(cluster, experiment)).finished_at is None:
        trial = await running(cluster, experiment)
        order.append((trial.number, trial.repeat))
        seconds = speeds[trial.number] * (1 + trial.repeat / 100)
        # The first steps are far slower: they are not counted.
        await run(cluster, trial.job_id, [50.0, 50.0, seconds, seconds, 2 * seconds])
        await cluster.settle()
    await cluster.coordinator.packer.pack_once()
    return order


async def rows(cluster: SimulatedCluster, experiment: str) -> list[BenchmarkRow]:
    found = (await cluster.coordinator.analyses.analyze(experiment)).table
    return [row for row in found if isinstance(row, BenchmarkRow)]


async def test_cells_run_in_random_order_and_are_compared(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, repeats=3, seed=3)
    listed = await trials(cluster, experiment)
    # Three workers do not divide the batch: rows with their reason, from the start on.
    impossible = [trial for trial in listed if trial.number == 3]
    assert [trial.state for trial in impossible] == ["failed"] * 3
    assert impossible[0].reason_code == "cannot_run"
    assert impossible[0].reason.startswith("cannot run: training.global_batch_size: ")
    order = {trial.position: (trial.number, trial.repeat) for trial in listed}
    assert sorted(order) == list(range(1, 10))
    expected = [key for _, key in sorted(order.items()) if key[0] != 3]
    assert await run_all(cluster, experiment, {1: 1.0, 2: 0.5}) == expected
    view = await read(cluster, experiment)
    assert (view.kind, view.state) == ("benchmark", "completed")
    assert view.counts == {"completed": 6, "failed": 3}

    analysis = await cluster.coordinator.analyses.analyze(experiment)
    one, two, three = await rows(cluster, experiment)
    assert [(row.strategy, row.workers, row.batch_size) for row in (one, two, three)] == [
        ("ddp", 1, 64), ("ddp", 2, 64), ("ddp", 3, 64),
    ]  # fmt: skip
    assert one.is_baseline
    assert one.step_seconds == pytest.approx(1.02)
    assert one.step_seconds_p95 == pytest.approx(1.9 * 1.02)
    assert one.samples_per_second == pytest.approx(64 / 1.02, rel=1e-3)
    assert one.communication_share == pytest.approx(0.5)
    assert (one.peak_memory_bytes, one.final_loss, one.shared_with) == (2.0**30, 0.5, [])
    assert (one.model_flops_utilization, one.energy_per_sample) == (None, None)
    assert one.predicted is not None
    assert (one.predicted.step_seconds, one.predicted.plan) == (0.5, "fsdp of a test")
    assert one.predicted.measured_memory_bytes is None
    assert one.latency_seconds == pytest.approx(0.75 * 1.02)
    assert one.communication_bytes == 6000
    assert one.bandwidth == pytest.approx(6000 / (0.75 * 1.02))
    assert (one.speedup, three.speedup, three.bandwidth) == (None, None, None)
    assert two.speedup == pytest.approx(2)
    assert two.speedup_interval is not None
    assert two.ratio == pytest.approx(2)
    assert two.verdict == "better"
    assert (three.state, three.samples_per_second, three.ratio) == ("failed", None, None)
    assert one.objective == one.samples_per_second
    assert analysis.best is not None
    assert analysis.best.trial == 2
    text = " ".join(analysis.findings)
    assert "The highest samples_per_second, 125.5 (mean of 3 runs, 95 % interval" in text
    assert "workers 2: 2 × the baseline (95 % interval" in text
    assert "1 combination of 3 cannot run. workers 3 cannot run: training.global_batch_size" in text
    assert "Not measured: model FLOP utilization and energy." in text
    assert (
        "The predicted step time is off by 26 % in the median of 2 combinations, by 51 % at worst "
        "(workers 1: predicted 500 ms, measured 1.02 s). Predictions of memory are not compared: "
        "that of tensors was not measured, as always on a CPU."
    ) in text

    for form in ReportFormat:
        content = await cluster.coordinator.analyses.report(experiment, form)
        assert "cannot run" in content
    text = await cluster.coordinator.analyses.report(experiment, ReportFormat.CSV)
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 9
    assert float(lines[0]["communication_share"]) == 0.5
    assert {line["communication_bytes"] for line in lines} == {"", "6000.0"}
    html = await cluster.coordinator.analyses.report(experiment, ReportFormat.HTML)
    assert "<td>baseline</td>" in html
    assert "<td>—</td>" in html
    assert "<td>5.9 KiB</td><td>7.7 KiB/s</td><td>765 ms</td><td>baseline</td>" in html


@on_sqlite
async def test_benchmark_of_too_many_workers_is_refused(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 3)
    refused = r"workers: the cluster has 3 CPU slots: leave out larger numbers, or add hosts first"
    for space in ({WORKERS: [1, 4, 8]}, {WORKERS: [1, 4], "resources.device": ["cpu"]}):
        with pytest.raises(ExperimentError, match=refused):
            await create(cluster, space=space, baseline=None)
    job = BENCHMARK["job"] | {"resources": {"workers": 4}}
    with pytest.raises(ExperimentError, match=r"^job\.resources\.workers: the cluster has 3 CPU"):
        await create(cluster, job=job, space={STRATEGY: ["ddp", "fsdp"]}, baseline=None)
    for elastic in ({"resources": [3, {"max_workers": 4}]}, {"resources.max_workers": [4]}):
        assert await create(cluster, job=job, space=elastic, baseline=None)
    assert await create(cluster, space={WORKERS: [1, 2]})


async def test_benchmark_counts_nodes_of_its_project(cluster: SimulatedCluster) -> None:
    alpha, _ = await cluster.add_node("alpha", 8), await cluster.add_node("beta", 2)
    nodes, experiments = cluster.coordinator.nodes, cluster.coordinator.experiments
    async with cluster.db.transaction() as session:
        for name in ("vision", "speech"):
            session.add(Project(name=name, limits={}, created_at=cluster.clock.now()))
    await nodes.change(alpha.node_id, projects=["vision"])
    refused = r"workers: all nodes of its project have 2 CPU slots: leave out larger numbers"
    speech = BENCHMARK["job"] | {"project": "speech"}
    for job in (BENCHMARK["job"], speech):  # without a project: the default one
        changes: dict[str, Any] = {"job": job, "space": {WORKERS: [1, 8]}}
        with pytest.raises(ExperimentError, match=refused):
            await create(cluster, **changes)
        with pytest.raises(ExperimentError, match=refused):
            await experiments.plan(validate_experiment({**BENCHMARK, **changes}))
    vision = BENCHMARK["job"] | {"project": "vision"}
    assert await create(cluster, job=vision, space={WORKERS: [1, 8]})
    for node in (await nodes.list()).items:
        await nodes.change(node.id, projects=["vision"])
    closed = r"workers: all nodes are limited to other projects: ask an admin for one"
    with pytest.raises(ExperimentError, match=closed):
        await create(cluster, job=speech, space={WORKERS: [1, 2]})


async def test_scaling_study_has_speedups_and_predictions(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 8)
    changes = {"kind": "scaling", "space": {WORKERS: [1, 2, 4, 8]}, "baseline": None}
    with pytest.raises(ExperimentError, match=r"workers: the cluster has 8 CPU slots: leave out"):
        await create(cluster, **changes | {"space": {WORKERS: [1, 16]}})
    experiment = await create(cluster, **changes)
    running_analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert running_analysis.findings[0].startswith("The experiment is running: 0 of 4 runs")
    await run_all(cluster, experiment, {1: 1.0, 2: 0.5, 3: 0.3, 4: 0.2})
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert analysis.scaling is not None
    (curve,) = analysis.scaling
    assert [p.workers for p in curve.points if not p.is_predicted] == [1, 2, 4, 8]
    assert [p.workers for p in curve.points if p.is_predicted] == [16, 32, 64]
    assert curve.points[3].speedup == pytest.approx(5)
    assert curve.points[3].communication_seconds == pytest.approx(0.2 * 1.01 / 2)
    assert curve.model is not None
    assert (curve.model.fitted_on, curve.model.validated_on) == ([1, 2, 4], 8)
    for form in (ReportFormat.HTML, ReportFormat.MD):
        report = await cluster.coordinator.analyses.report(experiment, form)
        assert "predicted, not measured: 64 workers have a speed" in report
        assert 'stroke-dasharray="4 4"' in report

    # On a host with four cores, eight ranks share them.
    async with cluster.db.transaction() as session:
        (await session.scalars(select(Node))).one().host_use = {"cores": 4}
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert analysis.scaling is not None
    (curve,) = analysis.scaling
    assert [p.workers for p in curve.points if p.shares_cores] == [8]
    assert curve.model is not None
    assert (curve.model.fitted_on, curve.model.validated_on) == ([1, 2], 4)
    assert any("shared cores or devices: marked" in text for text in analysis.findings)


async def test_row_names_the_jobs_beside_it(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    other = await cluster.submit(name="neighbour", resources={"workers": 1})
    await cluster.run_until(other, "running")
    experiment = await create(cluster, space={WORKERS: [1]})
    await run(cluster, (await running(cluster, experiment)).job_id, [1.0] * 5)
    await cluster.finish(other)
    await cluster.settle()
    (row,) = await rows(cluster, experiment)
    assert row.shared_with == [f"neighbour ({other})"]
    findings = (await cluster.coordinator.analyses.analyze(experiment)).findings
    assert any("shared hosts with other jobs" in text and "neighbour" in text for text in findings)


async def preempted(
    cluster: SimulatedCluster, first: list[float], second: list[float]
) -> tuple[str, str]:
    """Run a benchmark of one job with two attempts; return it and the job that came between."""
    await cluster.add_node("alpha", 1)
    job = {**BENCHMARK["job"], "checkpoint": {"path": "/shared/speed"}}
    experiment = await create(cluster, job=job, space={WORKERS: [1]})
    job_id = (await running(cluster, experiment)).job_id
    await step(cluster, job_id, first)
    await cluster.save_checkpoint(job_id, len(first))
    urgent = await cluster.submit(name="urgent", priority=3)
    await cluster.run_until(urgent, "running")
    await cluster.finish(urgent)
    await run(cluster, job_id, second, first=len(first) + 1)
    await cluster.settle()
    await cluster.coordinator.packer.pack_once()
    return experiment, urgent


async def test_attempts_count_by_their_steps(cluster: SimulatedCluster) -> None:
    experiment, _ = await preempted(cluster, [1.0] * 1000, [3.0] * 3000)
    (row,) = await rows(cluster, experiment)
    assert row.step_seconds == 3.0
    assert row.interruptions[0].endswith("its figures are of attempts 1 and 2")


async def test_row_says_that_its_run_was_preempted(cluster: SimulatedCluster) -> None:
    experiment, urgent = await preempted(cluster, [1.0] * 5, [3.0] * 2)
    (row,) = await rows(cluster, experiment)
    why = f"preempted by “urgent” ({urgent}), which has priority 3"
    assert row.interruptions == [f"interrupted: {why}; its figures are of attempt 1"], (
        "the second attempt did not outlast its warm-up"
    )
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert any(
        "1 combination was measured over an interruption" in text and why in text
        for text in analysis.findings
    )
    for form in (ReportFormat.MD, ReportFormat.HTML):
        report = await cluster.coordinator.analyses.report(experiment, form)
        assert "interrupted: preempted by" in report


async def test_attempt_that_never_ran_interrupts_nothing(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, space={WORKERS: [1]})
    job_id = (await running(cluster, experiment)).job_id
    assert (await cluster.job(job_id)).state == "starting"
    urgent = await cluster.submit(name="urgent", priority=3)
    await cluster.run_until(urgent, "running")
    await cluster.finish(urgent)
    await run(cluster, job_id, [1.0] * 5)
    await cluster.settle()
    await cluster.coordinator.packer.pack_once()
    assert (await cluster.job(job_id)).attempt == 2
    (row,) = await rows(cluster, experiment)
    assert (row.step_seconds, row.interruptions) == (1.0, [])


async def test_energy_is_the_power_of_its_gpus(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, space={WORKERS: [2]}, baseline=None)
    job_id = (await running(cluster, experiment)).job_id
    await run(cluster, job_id, [1.0] * 5)
    await cluster.settle()
    await cluster.coordinator.packer.pack_once()
    gpus = tuple(RankPlacement(rank, rank, "cuda", rank) for rank in range(2))
    async with cluster.db.transaction() as session:
        attempt = await session.get_one(Attempt, (job_id, 1))
        assert attempt.running_at is not None
        node = attempt.allocation[0].node_id
        started = attempt.running_at
        await session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id)
            .values(allocation=(NodeAllocation(node, "alpha", 0, gpus),))
        )
        for seconds, watts in ((1, 1.0), (60, 300.0), (90, 340.0), (900, 1.0)):
            devices = [[0, 99.0, 1, 50.0, watts], [1, 99.0, 1, 50.0, watts], [2, 0, 0, 0, 9.0]]
            time = started + timedelta(seconds=seconds)
            session.add(DeviceReading(node_id=node, time=time, devices=devices))
    (row,) = await rows(cluster, experiment)
    assert row.energy_per_sample == pytest.approx(640 / 64)


async def test_benchmark_of_which_nothing_can_run_is_refused(cluster: SimulatedCluster) -> None:
    spec = validate_experiment({**BENCHMARK, "space": {WORKERS: [3, 5]}, "baseline": None})
    with pytest.raises(ExperimentError, match="workers"):
        await cluster.coordinator.experiments.create(spec)
    spec = validate_experiment({**BENCHMARK, "space": {WORKERS: [1, 3]}})
    plan = await cluster.coordinator.experiments.plan(spec)
    assert plan.configurations[0].problem is None
    assert "global_batch_size" in str(plan.configurations[1].problem)
