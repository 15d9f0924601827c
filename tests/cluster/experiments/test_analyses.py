"""Analyses and reports on both databases: what is loaded, and with how many statements."""

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, update
from support.cluster.simulated import SimulatedCluster, failure
from support.experiments import RATE, SWEEP
from support.storage.frames import frame, table

from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.db.documents import Allocation, GenerationRecord, NodeAllocation, RankPlacement
from trainhall.db.ledger import LedgerEntry
from trainhall.db.models import Attempt
from trainhall.training.link.status import Outcome


async def create(cluster: SimulatedCluster, **changes: Any) -> str:
    spec = validate_experiment({**SWEEP, **changes})
    view, _ = await cluster.coordinator.experiments.create(spec)
    await cluster.settle()
    return view.id


def devices(count: int) -> Allocation:
    ranks = tuple(RankPlacement(n, n, "cpu", n) for n in range(count))
    return Allocation((NodeAllocation("a", "alpha", 0, ranks),))


async def jobs(cluster: SimulatedCluster, experiment: str) -> list[str]:
    page = await cluster.coordinator.experiments.trials(experiment, limit=1000)
    return [str(trial.job_id) for trial in page.items]


async def run(
    cluster: SimulatedCluster, job_id: str, accuracy: float, step_seconds: list[float]
) -> None:
    await cluster.run_until(job_id, "running")
    cluster.clock.advance(1)
    count = len(step_seconds)
    points = table(
        range(1, count + 1),
        eval_accuracy=[accuracy] * count,
        step_seconds=step_seconds,
        peak_memory_bytes=[2.0**20] * count,
    )
    body = frame(1, points)
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
    await cluster.finish(job_id)


async def test_ended_experiment_is_analyzed(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster)
    first, second, third = await jobs(cluster, experiment)
    # Longer than a chunk: the median is of every 16th point.
    await run(cluster, first, 0.5, [float(i % 16) for i in range(1, 3201)])
    await run(cluster, second, 0.75, [0.25, 0.5, 0.25, float("nan")])
    await cluster.run_until(third, "running")
    software = {"python": "3.12.3", "os": "Linux", "packages": {"torch": "2.12.0+cpu"}}
    await cluster.report_event(third, "packages", software)
    await cluster.finish(third, Outcome.FAILED, failure())
    await cluster.settle()
    await cluster.coordinator.packer.pack_once()

    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert (analysis.is_final, analysis.runs, analysis.ended) == (True, 3, 3)
    assert analysis.best is not None
    assert (analysis.best.trial, analysis.best.value, analysis.best.interval) == (2, 0.75, None)
    assert analysis.best.job_id == second
    assert [row.objective for row in analysis.table] == [0.5, 0.75, None]
    assert [row.step_seconds for row in analysis.table] == [0.0, 0.25, None]
    assert [row.samples_per_second for row in analysis.table] == [None] * 3
    assert [row.peak_memory_bytes for row in analysis.table] == [2.0**20, 2.0**20, None]
    assert [row.steps for row in analysis.table] == [3200, 4, None]
    assert all(row.duration_seconds is not None for row in analysis.table)
    assert analysis.device_hours > 0
    assert "bad luck" in analysis.table[2].reason
    assert analysis.importance.fields == []
    assert any(text.startswith("1 of 3 runs failed: 1 × ") for text in analysis.findings)

    text = await cluster.coordinator.analyses.report(experiment, ReportFormat.CSV)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["objective"] for row in rows] == ["0.5", "0.75", ""]
    assert [row["job_id"] for row in rows] == [first, second, third]

    text = await cluster.coordinator.analyses.report(experiment, ReportFormat.HTML)
    assert re.search(
        r"<dt>time of the runs</dt><dd>[\d -]+:\d\d:\d\d UTC to [\d -]+:\d\d:\d\d UTC</dd>", text
    )
    assert "<dt>torch</dt><dd>2.12.0+cpu</dd>" in text
    assert "<dt>node alpha</dt><dd>1 × cpu 0, 1 × cpu 1 and 1 × cpu 2</dd>" in text

    start = cluster.clock.now() - timedelta(hours=20)
    async with cluster.db.transaction() as session:
        await session.execute(
            update(Attempt)
            .where(Attempt.job_id == first)
            .values(
                started_at=start, finished_at=start + timedelta(hours=10), world_size=1,
                generation=2, generations=(
                    GenerationRecord(1, start, "", 2, devices(2)),
                    GenerationRecord(2, start + timedelta(hours=9), "", 1, devices(1)),
                ),
            )
        )  # fmt: skip
        counted = update(LedgerEntry).values(counted_until=start)
        await session.execute(counted.where(LedgerEntry.job_id == first))
    await cluster.coordinator.ledger_keeper.keep()
    regrouped = await cluster.coordinator.analyses.analyze(experiment)
    assert regrouped.device_hours == pytest.approx(2 * 9 + 1, abs=0.1)


async def test_running_experiment_is_analyzed_as_far_as_it_is(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, parallel=1)
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert (analysis.best, analysis.ended, analysis.is_final) == (None, 0, False)
    assert analysis.findings[0].startswith("The experiment is running: 0 of 3 runs have ended.")
    assert analysis.findings[1] == "No run has completed, so no trial is the best."
    assert [row.state for row in analysis.table] == ["starting", "pending", "pending"]
    for form in ReportFormat:
        assert await cluster.coordinator.analyses.report(experiment, form)
    await run(cluster, (await jobs(cluster, experiment))[0], 0.5, [0.25])
    await cluster.settle()
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert analysis.best is not None
    assert (analysis.best.trial, analysis.ended) == (1, 1)


async def test_statements_do_not_grow_with_the_runs(cluster: SimulatedCluster) -> None:
    executed: list[list[str]] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        executed[-1].append(statement)

    for trials in (2, 40):
        space = {RATE: [i / 100 for i in range(1, trials + 1)]}
        experiment = await create(cluster, space=space, parallel=40)
        executed.append([])
        event.listen(Engine, "before_cursor_execute", note)
        try:
            await cluster.coordinator.analyses.analyze(experiment)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    few, many = executed
    assert few == many
    assert few


async def test_unknown_experiment_is_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(NotFoundError):
        await cluster.coordinator.analyses.analyze("nothing")
    for form in ReportFormat:
        with pytest.raises(NotFoundError):
            await cluster.coordinator.analyses.report("nothing", form)
