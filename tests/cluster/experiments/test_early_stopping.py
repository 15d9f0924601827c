"""Sweeps with early stopping on a simulated cluster: who is promoted, who is stopped, and why."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.testing import capture_logs
from support.cluster.simulated import SimulatedCluster, failure
from support.database import on_sqlite
from support.experiments import RATE, read, trials
from support.storage.frames import frame, table

from trainhall.cluster.experiments import advance as advancing
from trainhall.cluster.experiments import load as loading
from trainhall.cluster.experiments import tpe, views
from trainhall.cluster.experiments.asha import RungRun
from trainhall.cluster.experiments.decide import ExperimentFacts, Step
from trainhall.cluster.experiments.decide import next_step as real_next_step
from trainhall.cluster.experiments.spec import AshaSpec, ExperimentSpec, validate_experiment
from trainhall.cluster.experiments.tpe import Past
from trainhall.training.link.status import Outcome

RUNGS = (10, 30, 90)
BUSY = ("starting", "running", "queued")


def sweep(values: int = 9, **changes: Any) -> ExperimentSpec:
    return validate_experiment(
        {
            "name": "rates",
            "kind": "sweep",
            "job": {
                "name": "x",
                "task": {"name": "synthetic"},
                "recovery": {"max_restarts": 0},
            },
            "space": {RATE: [n / 100 for n in range(1, values + 1)]},
            "method": "grid",
            "objective": {"metric": "loss"},
            "parallel": 2,
            "early_stopping": {"asha": {"min_steps": 10, "max_steps": 90}},
            **changes,
        }
    )


async def create(cluster: SimulatedCluster, values: int = 9, **changes: Any) -> str:
    view, _ = await cluster.coordinator.experiments.create(sweep(values, **changes))
    await cluster.settle()
    return view.id


async def measure(cluster: SimulatedCluster, job_id: str, step: int, loss: float) -> None:
    attempt = (await cluster.job(job_id)).attempt
    body = frame(1, table([step], loss=[loss]))
    await cluster.coordinator.ingest.metrics(job_id, attempt, f"{attempt}-aaaaaaaa", body)


async def advance(cluster: SimulatedCluster, run: views.Trial, loss: float) -> None:
    """Let a run reach its next rung, or its end."""
    job_id = str(run.job_id)
    await cluster.run_until(job_id, "running")
    step = RUNGS[run.rung or 0]
    await measure(cluster, job_id, step, loss)
    ends = step == RUNGS[-1]
    await cluster.finish(job_id, Outcome.COMPLETED if ends else Outcome.PAUSED)


async def run_all(
    cluster: SimulatedCluster, experiment: str, loss: Callable[[views.Trial], float]
) -> int:
    """Let all runs reach their ends; return the most that were unfinished and not waiting."""
    most = 0
    for _ in range(100):
        busy = [run for run in await trials(cluster, experiment) if run.state in BUSY]
        if not busy:
            return most
        most = max(most, len(busy))
        await advance(cluster, busy[0], loss(busy[0]))
    raise AssertionError("the runs do not end")


async def test_best_runs_are_promoted_and_others_stopped(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster)
    assert await run_all(cluster, experiment, lambda run: run.number / 10) == 2
    view = await read(cluster, experiment)
    assert (view.state, view.counts) == ("completed", {"completed": 1, "stopped": 8})
    assert view.reason == "1 of 9 runs completed, 8 stopped early; best is trial 1 with loss 0.1"
    assert view.finished_at is not None
    assert view.steps == views.Steps(taken=90 + 2 * 30 + 6 * 10, in_full=9 * 90)
    listed = await trials(cluster, experiment)
    assert [(run.rung, run.step, run.objective) for run in listed] == [
        (3, 90, 0.1), (2, 30, 0.2), (2, 30, 0.3), *((1, 10, n / 10) for n in range(4, 10)),
    ]  # fmt: skip
    assert [(result.step, result.value) for result in listed[1].results] == [(10, 0.2), (30, 0.2)]
    assert all(run.finished_at is not None for run in listed)
    assert {run.state for run in listed[1:]} == {"stopped"}
    reason = "stopped early at step 10: 8 of 9 runs were better"
    assert (listed[8].reason, listed[8].reason_code) == (reason, "stopped_early")
    analysis = await cluster.coordinator.analyses.analyze(experiment)
    assert analysis.best is not None
    assert (analysis.best.trial, analysis.ended) == (1, 9)
    assert [row.objective for row in analysis.table] == [0.1, *[None] * 8]
    at_rungs = [row.at_rung and (row.at_rung.step, row.at_rung.value) for row in analysis.table]
    assert at_rungs == [None, (30, 0.2), (30, 0.3), *((10, n / 10) for n in range(4, 10))]
    assert [run.objective_step for run in listed] == [at and at[0] for at in at_rungs]
    job = await cluster.job(str(listed[8].job_id))
    assert (job.state, job.reason, job.reason_code) == ("cancelled", reason, "stopped_early")
    assert (job.spec or {})["training"] == {
        **(job.spec or {})["training"], "steps": 90, "pause_at": [10, 30], "learning_rate": 0.09,
    }  # fmt: skip
    events = (await cluster.coordinator.jobs.events(str(listed[0].job_id))).items
    promoted = [event.reason for event in events if event.code == "promoted"]
    assert promoted == [
        f"promoted from rung {rung} of “rates” (experiment {experiment})" for rung in (1, 2)
    ]


@on_sqlite
async def test_late_good_run_names_the_taken_promotion(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=4)
    losses = {1: 0.2, 2: 0.3, 3: 0.4, 4: 0.1}
    await run_all(cluster, experiment, lambda run: losses[run.number])
    listed = await trials(cluster, experiment)
    assert [run.state for run in listed] == ["completed", "stopped", "stopped", "stopped"]
    assert listed[3].reason == (
        "stopped early at step 10: 0 of 4 runs were better, "
        "but the only promotion from this rung is taken"
    )


@on_sqlite
async def test_promotion_follows_a_result_in_the_same_pass(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=3)
    first, second, _ = await trials(cluster, experiment)
    await advance(cluster, first, 0.1)
    await advance(cluster, second, 0.2)
    _, _, third = await trials(cluster, experiment)
    await cluster.run_until(str(third.job_id), "running")
    await measure(cluster, str(third.job_id), RUNGS[0], 0.3)
    reconciler = cluster.coordinator.reconciler
    with patch.object(reconciler, "settle"):
        await cluster.finish(str(third.job_id), Outcome.PAUSED)
    while (await cluster.job(str(third.job_id))).state != "paused":
        assert await reconciler.pass_once()
    assert (await cluster.job(str(first.job_id))).state == "paused"
    await reconciler.pass_once()
    assert (await cluster.job(str(first.job_id))).state == "queued"


async def test_waiting_run_does_not_hide_runs_that_never_fit(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, space={"resources.workers": [1, 32, 64]})
    assert (await read(cluster, experiment)).reason_code == "trials_run", "the first one can start"
    first, *_ = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    await cluster.settle()
    view = await read(cluster, experiment)
    assert view.counts == {"paused": 1, "queued": 2}
    assert view.reason_code == "no_run_fits"
    assert "needs 32 CPU slots" in view.reason


async def test_runs_that_wait_at_a_rung_are_not_stuck(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, values=3, parallel=1)
    for _ in range(2):
        started = [run for run in await trials(cluster, experiment) if run.state in BUSY]
        await advance(cluster, started[0], 0.5)
        view = await read(cluster, experiment)
        assert (view.state, view.reason_code) != ("running", "no_run_fits")


async def test_waiting_run_holds_no_place(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster)
    first, *_ = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    counts = (await read(cluster, experiment)).counts
    assert counts == {"paused": 1, "running": 1, "starting": 1, "pending": 6}
    first, *_ = await trials(cluster, experiment)
    assert (first.rung, first.step, first.objective) == (1, 10, 0.5)
    assert first.reason == (
        f"waits at step 10 of “rates” (experiment {experiment}): it continues when it is among the "
        "best third"
    )
    job = await cluster.job(str(first.job_id))
    assert (job.reason, job.reason_code) == (first.reason, "waits_at_rung")
    events = (await cluster.coordinator.jobs.events(job.id)).items
    assert events[-1].reason == "paused at step 10, a rung of its experiment"


@on_sqlite
async def test_trials_are_compared_only_after_a_change(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=2)
    first, second = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    read_of: list[str] = []
    real = loading._compared

    async def compared(session: AsyncSession, experiment_id: str) -> tuple[RungRun, ...]:
        read_of.append(experiment_id)
        return await real(session, experiment_id)

    monkeypatch.setattr(loading, "_compared", compared)
    await cluster.settle()
    assert read_of == []
    await advance(cluster, second, 0.4)
    assert set(read_of) == {experiment}
    assert [run.state for run in await trials(cluster, experiment)] == ["stopped", "starting"]


@on_sqlite
async def test_result_without_consequence_is_compared_once(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=2, parallel=3)
    first, _ = await trials(cluster, experiment)
    transactions: list[int] = []
    real = advancing.ExperimentAdvancer._change_trials

    async def change_trials(
        self: advancing.ExperimentAdvancer, facts: ExperimentFacts, seen: Step
    ) -> Step:
        step = await real(self, facts, seen)
        transactions.append(len(step.at_rung))
        return step

    monkeypatch.setattr(advancing.ExperimentAdvancer, "_change_trials", change_trials)
    await advance(cluster, first, 0.5)
    await cluster.settle()
    assert transactions == [1]


async def test_pause_and_resume_take_promotions_along(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiments = cluster.coordinator.experiments
    experiment = await create(cluster, values=3, parallel=3)
    third, first, second = await trials(cluster, experiment)
    await cluster.run_until(str(third.job_id), "running")
    await advance(cluster, first, 0.2)
    await measure(cluster, str(third.job_id), 10, 0.1)
    await experiments.pause(experiment)
    # The pause falls on its rung.
    await cluster.run_until(str(third.job_id), "paused")
    await cluster.run_until(str(second.job_id), "paused")
    await cluster.settle()
    assert [run.rung for run in await trials(cluster, experiment)] == [1, 1, None]
    assert (await read(cluster, experiment)).counts == {"paused": 3}
    await experiments.resume(experiment)
    await cluster.settle()
    assert [run.state for run in await trials(cluster, experiment)] == [
        "paused",
        "stopped",
        "starting",
    ]
    await run_all(cluster, experiment, lambda run: run.number / 10)
    assert (await read(cluster, experiment)).counts == {"completed": 1, "stopped": 2}


async def test_cancel_ends_waiting_runs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster)
    first, *_ = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    await cluster.coordinator.experiments.cancel(experiment)
    await cluster.settle()
    await cluster.work(5)
    view = await read(cluster, experiment)
    assert (view.state, view.counts) == ("cancelled", {"cancelled": 9})
    assert view.finished_at is not None


async def test_user_may_resume_a_waiting_run(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=4)
    first, *_ = await trials(cluster, experiment)
    await advance(cluster, first, 0.9)
    await cluster.coordinator.jobs.resume(str(first.job_id))
    await cluster.settle()
    counts = (await read(cluster, experiment)).counts
    assert sum(counts.get(state, 0) for state in BUSY) == 3
    await run_all(cluster, experiment, lambda run: run.number / 10)
    view = await read(cluster, experiment)
    assert (view.state, view.counts["stopped"]) == ("completed", 3)


async def test_next_best_takes_the_place_of_a_failed_run(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=6, parallel=6)
    listed = await trials(cluster, experiment)
    for run in listed[:5]:
        await advance(cluster, run, run.number / 10)
    first = listed[0]
    await cluster.run_until(str(first.job_id), "running")
    await cluster.finish(str(first.job_id), Outcome.FAILED, failure())
    await run_all(cluster, experiment, lambda run: run.number / 10)
    states = [(run.state, run.rung, run.objective) for run in await trials(cluster, experiment)]
    assert states[:2] == [("failed", 1, None), ("completed", 3, 0.2)]
    assert {state for state, _, _ in states[2:]} == {"stopped"}
    assert (await read(cluster, experiment)).state == "completed"


async def test_rungs_compare_the_mean_of_repeats(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 6)
    experiment = await create(cluster, values=3, repeats=2, parallel=6)
    noise = {(1, 1): 0.0, (1, 2): 0.9, (2, 1): 0.3, (2, 2): 0.3}
    await run_all(cluster, experiment, lambda run: noise.get((run.number, run.repeat), 0.8))
    listed = await trials(cluster, experiment)
    assert [run.state for run in listed] == [*["stopped"] * 2, *["completed"] * 2, *["stopped"] * 2]
    assert listed[0].reason == "stopped early at step 10: 1 of 2 trials was better"
    best = (await read(cluster, experiment)).best
    assert best is not None
    assert (best.trial, best.value) == (2, 0.3)


async def test_trial_with_a_failed_repeat_is_stopped(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster, values=1, repeats=2)
    first, second = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    await cluster.run_until(str(second.job_id), "running")
    await cluster.finish(str(second.job_id), Outcome.FAILED, failure())
    first, second = await trials(cluster, experiment)
    assert (first.state, second.state) == ("stopped", "failed")
    why = "another repeat of its trial has failed"
    assert first.reason == f"stopped early at step 10: {why}"
    view = await read(cluster, experiment)
    assert (view.state, view.reason) == ("failed", "0 of 2 runs completed, 1 stopped early")


@on_sqlite
async def test_trial_with_a_cancelled_repeat_starts_no_other(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    experiment = await create(cluster, values=1, repeats=3)
    first, second, _ = await trials(cluster, experiment)
    await cluster.coordinator.jobs.cancel(str(second.job_id))
    await cluster.settle()
    await advance(cluster, first, 0.5)
    first, second, third = await trials(cluster, experiment)
    assert [run.state for run in (first, second, third)] == ["stopped", "cancelled", "stopped"]
    why = "another repeat of its trial was cancelled"
    assert first.reason == f"stopped early at step 10: {why}"
    assert third.reason == f"stopped early before its start: {why}"
    assert (third.job_id, third.rung) == (None, None)
    view = await read(cluster, experiment)
    assert (view.state, view.reason) == ("failed", "0 of 3 runs completed, 2 stopped early")


async def test_run_without_a_value_is_stopped_and_explained(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(
        cluster, values=3, objective={"metric": "lost", "goal": "min"}, parallel=1
    )
    first, *_ = await trials(cluster, experiment)
    await advance(cluster, first, 0.5)
    view = await read(cluster, experiment)
    assert (view.state, view.reason_code) == ("paused", "paused_unrated")
    await cluster.coordinator.experiments.resume(experiment)
    await cluster.settle()
    first, second, _ = await trials(cluster, experiment)
    await advance(cluster, second, 0.5)
    assert (first.state, first.objective) == ("stopped", None)
    assert first.reason == "stopped early at step 10: it has no finite value of lost"
    view = await read(cluster, experiment)
    why = "did you mean loss? The job reports loss, not lost"
    assert view.reason == f"trial 2 has no objective: {why}"


async def test_run_that_passes_its_rungs_is_compared_there(cluster: SimulatedCluster) -> None:
    """As a script that does not ask whether to stop."""
    await cluster.add_node("alpha", 4)
    script = {"name": "x", "script": {"path": "/train.py", "args": ["${lr}"]}}
    experiment = await create(
        cluster, job=script, space={"parameters.lr": [0.1, 0.2, 0.3]}, parallel=1
    )
    first, *_ = await trials(cluster, experiment)
    job = await cluster.run_until(str(first.job_id), "running")
    assert (job.spec or {})["training"] == {"pause_at": [10, 30]}
    body = frame(1, table([5, 10, 20, 90], loss=[0.5, 0.25, 0.125, 0.01]))
    await cluster.coordinator.ingest.metrics(str(first.job_id), 1, "0-aaaaaaaa", body)
    await cluster.finish(str(first.job_id))
    await run_all(cluster, experiment, lambda _: 0.2)
    listed = await trials(cluster, experiment)
    assert [(run.state, run.rung, run.objective) for run in listed] == [
        ("completed", 3, 0.01), ("stopped", 1, 0.2), ("stopped", 1, 0.2),
    ]  # fmt: skip


async def test_script_that_counts_otherwise_is_compared(cluster: SimulatedCluster) -> None:
    """It reports its validation by the epoch, so that its step is below that of the rung."""
    await cluster.add_node("alpha", 4)
    script = {"name": "x", "script": {"path": "/train.py", "args": ["${lr}"]}}
    experiment = await create(
        cluster, job=script, space={"parameters.lr": [0.1, 0.2, 0.3]}, parallel=3
    )
    for run in await trials(cluster, experiment):
        job = await cluster.run_until(str(run.job_id), "running")
        body = frame(1, table([2], loss=[run.number / 10]))
        await cluster.coordinator.ingest.metrics(job.id, 1, "0-aaaaaaaa", body)
        await cluster.finish(job.id, Outcome.PAUSED)
    listed = await trials(cluster, experiment)
    assert [(run.state, run.rung, run.objective) for run in listed] == [
        ("starting", 1, 0.1), ("stopped", 1, 0.2), ("stopped", 1, 0.3),
    ]  # fmt: skip
    job = await cluster.run_until(str(listed[0].job_id), "running")
    await measure(cluster, job.id, 6, 0.05)
    await cluster.finish(job.id, Outcome.PAUSED)
    first, *_ = await trials(cluster, experiment)
    assert [(result.step, result.value) for result in first.results] == [(10, 0.1), (30, 0.05)]


@pytest.mark.side_by_side
async def test_two_coordinators_promote_nothing_twice(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 6)
    experiment = await create(cluster, values=6, parallel=6)
    listed = await trials(cluster, experiment)
    await cluster.coordinator.experiments.pause(experiment)
    for run in listed:
        await cluster.run_until(str(run.job_id), "paused")
        await measure(cluster, str(run.job_id), 10, run.number / 10)
    await cluster.settle()
    first = cluster.coordinator
    await first.experiments.resume(experiment)
    cluster.start_coordinator()
    second = cluster.coordinator
    await asyncio.gather(*(c.reconciler.settle() for c in (first, second) * 2))
    await second.reconciler.settle()
    codes = [(await second.jobs.events(str(run.job_id))).items for run in listed]
    promoted = [sum(event.code == "promoted" for event in events) for events in codes]
    assert promoted == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("low", "high", "factor", "rungs"),
    [
        (10, 90, 3, (10, 30, 90)),
        (10, 100, 3, (10, 30, 90, 100)),
        (10, 25, 3, (10, 25)),
        (1, 8, 2, (1, 2, 4, 8)),
    ],
)
def test_rungs_end_at_max_steps(low: int, high: int, factor: int, rungs: tuple[int, ...]) -> None:
    assert AshaSpec(min_steps=low, max_steps=high, factor=factor).rungs == rungs


@pytest.mark.parametrize("stops_early", [False, True])
async def test_tpe_chooses_each_trial_when_a_place_is_free(
    cluster: SimulatedCluster, stops_early: bool
) -> None:
    await cluster.add_node("alpha", 2)
    chosen = []
    for _ in range(2):
        changes: dict[str, Any] = {"early_stopping": None} if not stops_early else {}
        job = {"name": "x", "task": {"name": "synthetic"}, "recovery": {"max_restarts": 0}}
        if not stops_early:
            job["training"] = {"steps": 90}
        space = {RATE: {"log": [0.0001, 1]}}
        experiment = await create(
            cluster, method="tpe", space=space, job=job, parallel=1, **changes, seed=7,
            trials=4,
        )  # fmt: skip
        view = await read(cluster, experiment)
        assert view.counts == {"starting": 1, "pending": 3}
        assert view.reason == "at most 1 unfinished at a time"
        for _ in range(10):
            busy = [run for run in await trials(cluster, experiment) if run.state in BUSY]
            if not busy:
                break
            if stops_early:
                await advance(cluster, busy[0], busy[0].number / 10)
                continue
            await cluster.run_until(str(busy[0].job_id), "running")
            await measure(cluster, str(busy[0].job_id), 90, busy[0].number / 10)
            await cluster.finish(str(busy[0].job_id))
        view = await read(cluster, experiment)
        counts = {"completed": 1, "stopped": 3} if stops_early else {"completed": 4}
        assert (view.state, view.counts) == ("completed", counts)
        chosen.append([run.values for run in await trials(cluster, experiment)])
    assert chosen[0] == chosen[1]


async def test_cancelled_tpe_chooses_no_more(cluster: SimulatedCluster) -> None:
    experiments = cluster.coordinator.experiments
    space = {RATE: {"log": [0.0001, 1]}}
    experiment = await create(cluster, method="tpe", space=space, parallel=1, trials=4)
    assert (await experiments.pause(experiment)).state == "paused"
    await cluster.settle()
    assert (await read(cluster, experiment)).counts == {"paused": 1, "pending": 3}
    await experiments.cancel(experiment)
    await cluster.settle()
    view = await read(cluster, experiment)
    assert view.counts == {"cancelled": 1}
    assert view.finished_at is not None


async def test_experiment_cancelled_before_its_first_trial_has_no_steps(
    cluster: SimulatedCluster,
) -> None:
    space = {RATE: {"log": [0.0001, 1]}}
    experiments = cluster.coordinator.experiments
    view, _ = await experiments.create(sweep(method="tpe", space=space, trials=4))
    assert view.steps == views.Steps(taken=0, in_full=4 * 90)
    view = await experiments.cancel(view.id)
    assert (view.counts, view.steps) == ({}, None)


async def test_fault_while_choosing_costs_only_its_trial(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def suggest(spec: object, past: Past) -> dict[str, Any]:
        if not past.trials:
            raise ZeroDivisionError("no such luck")
        return {RATE: 0.1}

    monkeypatch.setattr(tpe, "suggest", suggest)
    space = {RATE: {"log": [0.0001, 1]}}
    experiment = await create(cluster, method="tpe", space=space, parallel=1, trials=2)
    failed, other = await trials(cluster, experiment)
    assert (failed.state, failed.reason) == (
        "failed",
        "could not be started: choosing its values failed: ZeroDivisionError: no such luck",
    )
    assert (other.state, other.values) == ("queued", {RATE: 0.1})


async def test_fault_in_an_experiment_stops_no_other(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_node("alpha", 4)
    faulty = await create(cluster, values=2)

    def next_step(facts: ExperimentFacts) -> Step:
        if facts.id == faulty:
            raise ZeroDivisionError("planted")
        return real_next_step(facts)

    monkeypatch.setattr(advancing, "next_step", next_step)
    with capture_logs() as logged:
        other = await create(cluster, values=2)
        await run_all(cluster, other, lambda run: run.number / 10)
    assert (await read(cluster, other)).state == "completed"
    faults = [entry for entry in logged if entry["event"] == "experiment_not_advanced"]
    assert [entry["experiment"] for entry in faults] == [faulty]
    monkeypatch.undo()
    await run_all(cluster, faulty, lambda run: run.number / 10)
    assert (await read(cluster, faulty)).state == "completed"


@pytest.mark.side_by_side
async def test_two_coordinators_choose_no_trial_twice(cluster: SimulatedCluster) -> None:
    space = {RATE: {"log": [0.0001, 1]}}
    experiment = await create(cluster, method="tpe", space=space, parallel=1, trials=4)
    first = cluster.coordinator
    (run,) = await trials(cluster, experiment)
    await first.jobs.cancel(str(run.job_id))
    cluster.start_coordinator()
    second = cluster.coordinator
    await asyncio.gather(*(c.reconciler.settle() for c in (first, second) * 2))
    await second.reconciler.settle()
    assert [run.number for run in await trials(cluster, experiment)] == [1, 2]
    assert len((await second.jobs.list()).items) == 2
