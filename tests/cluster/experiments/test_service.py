"""Experiments whose jobs run on a simulated cluster, on both databases."""

import asyncio
import math
import os
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, update
from structlog.testing import capture_logs
from support.cluster.simulated import SimulatedCluster, failure
from support.database import on_sqlite
from support.experiments import RATE, SWEEP, read, trials
from support.storage.frames import frame, table

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.cluster.errors import InvalidCursorError, NotFoundError, WrongStateError
from trainhall.cluster.experiments import load as loading
from trainhall.cluster.experiments.record import log_committed
from trainhall.cluster.experiments.spec import ExperimentError, validate_experiment
from trainhall.cluster.quotas import Quotas
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Job
from trainhall.training.link.status import Outcome

LARGE = {**SWEEP["job"], "resources": {"workers": 8}}


def sweep(**changes: Any) -> Any:
    space = {RATE: [0.1, 0.2, 0.3, 0.4]}
    return validate_experiment({**SWEEP, "space": space, "parallel": 2, **changes})


async def create(cluster: SimulatedCluster, **changes: Any) -> str:
    view, _ = await cluster.coordinator.experiments.create(sweep(**changes))
    await cluster.settle()
    return view.id


async def report(cluster: SimulatedCluster, job_id: str, *values: float) -> None:
    """The job's ranks measure its objective, at one step after the other."""
    steps = list(range(1, len(values) + 1))
    body = frame(1, table(steps, eval_accuracy=list(values)))
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)


async def run_trial(cluster: SimulatedCluster, job_id: str | None, *values: float) -> None:
    assert job_id is not None
    await cluster.run_until(job_id, "running")
    await report(cluster, job_id, *values)
    await cluster.finish(job_id)


async def test_trials_run_in_order_and_the_best_is_found(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiment = await create(cluster)
    assert (await read(cluster, experiment)).counts == {"starting": 2, "pending": 2}
    accuracies = [0.5, 0.9, 0.7, 0.6]
    for number, accuracy in enumerate(accuracies):
        listed = await trials(cluster, experiment)
        unfinished = [t for t in listed if t.job_id and t.state != "completed"]
        assert len(unfinished) == min(2, 4 - number)
        await run_trial(cluster, listed[number].job_id, 1.0, accuracy)
    view = await read(cluster, experiment)
    assert (view.state, view.counts) == ("completed", {"completed": 4})
    assert view.finished_at is not None
    assert view.reason == ("4 of 4 runs completed; best is trial 2 with eval_accuracy 0.9")
    listed = await trials(cluster, experiment)
    assert [t.objective for t in listed] == accuracies
    assert [t.values for t in listed] == [{RATE: rate} for rate in (0.1, 0.2, 0.3, 0.4)]
    assert view.best is not None
    assert view.best.model_dump() == {
        "trial": 2, "job_id": listed[1].job_id, "value": 0.9, "step": None, "ties": [],
        "values": {RATE: 0.2},
    }  # fmt: skip
    job = await cluster.job(str(listed[1].job_id))
    assert (job.spec or {})["training"]["learning_rate"] == 0.2
    assert job.name == "rates trial 2"
    assert job.experiment is not None
    assert job.experiment.model_dump() == {"id": experiment, "trial": 2, "repeat": 1}
    (first, *_) = (await cluster.coordinator.jobs.events(job.id)).items
    assert first.reason == f"submitted as trial 2 of “rates” (experiment {experiment})"
    assert first.code == "trial_started"


async def test_best_value_of_a_run_and_mean_of_repeats(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    objective = {"metric": "eval_accuracy", "goal": "max", "at": "best"}
    experiment = await create(
        cluster, objective=objective, repeats=2, parallel=4, space={RATE: [0.1, 0.2]}
    )
    measured = [(0.25, 0.5), (0.75, 0.25), (1.0, 0.5), (0.0, 0.125)]
    for trial, values in zip(await trials(cluster, experiment), measured, strict=True):
        await run_trial(cluster, trial.job_id, *values)
    listed = await trials(cluster, experiment)
    assert [t.objective for t in listed] == [0.5, 0.75, 1.0, 0.125]
    best = (await read(cluster, experiment)).best
    assert best is not None
    assert (best.trial, best.value, best.job_id) == (1, 0.625, listed[1].job_id)


@pytest.mark.parametrize(("goal", "best"), [("min", 0.25), ("max", 0.5)])
async def test_best_value_is_finite(cluster: SimulatedCluster, goal: str, best: float) -> None:
    await cluster.add_node("alpha", 1)
    objective = {"metric": "eval_accuracy", "goal": goal, "at": "best"}
    experiment = await create(cluster, objective=objective, space={RATE: [0.1]})
    (trial,) = await trials(cluster, experiment)
    await run_trial(cluster, trial.job_id, math.nan, 0.25, math.inf, 0.5, -math.inf)
    assert [t.objective for t in await trials(cluster, experiment)] == [best]


@pytest.mark.parametrize("value", [1e200, -1e200, sys.float_info.max, 5e-324])
async def test_mean_of_extreme_values_is_finite(cluster: SimulatedCluster, value: float) -> None:
    await cluster.add_node("alpha", 3)
    experiment = await create(cluster, repeats=3, parallel=3, space={RATE: [0.1]})
    for trial, part in zip(await trials(cluster, experiment), (1, 0.5, 1), strict=True):
        await run_trial(cluster, trial.job_id, value * part)
    view = await read(cluster, experiment)
    assert view.state == "completed"
    assert view.best is not None
    assert math.isfinite(view.best.value)


async def test_failed_trial_is_a_row_with_its_cause(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    experiment = await create(cluster, space={RATE: [0.1, 0.2]})
    first, second = await trials(cluster, experiment)
    await run_trial(cluster, second.job_id, float("nan"))
    await cluster.run_until(str(first.job_id), "running")
    await cluster.finish(str(first.job_id), Outcome.FAILED, failure())
    first, second = await trials(cluster, experiment)
    assert (first.state, first.objective) == ("failed", None)
    assert "bad luck" in first.reason
    assert (second.state, second.objective) == ("completed", None)
    assert second.reason == "completed without an objective: eval_accuracy has no finite value"
    view = await read(cluster, experiment)
    assert (view.state, view.best) == ("failed", None)
    assert view.reason == (
        "1 of 2 runs completed; no trial has a value of eval_accuracy; trial 2: eval_accuracy has "
        "no finite value"
    )


async def test_first_run_without_the_metric_pauses(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    objective = {"metric": "eval_acc", "goal": "max"}
    experiment = await create(cluster, objective=objective)
    first, second, *_ = await trials(cluster, experiment)
    await run_trial(cluster, first.job_id, 0.5)
    first, *_ = await trials(cluster, experiment)
    why = "did you mean eval_accuracy? The job reports eval_accuracy, not eval_acc"
    assert first.reason == f"completed without an objective: {why}"
    view = await read(cluster, experiment)
    assert view.reason == (
        f"trial 1 has no objective, so no further run starts until you resume: {why}"
    )
    assert (view.state, view.reason_code) == ("paused", "paused_unrated")
    # The run that had started goes on to its end.
    await run_trial(cluster, second.job_id, 0.5)
    assert (await read(cluster, experiment)).counts == {"completed": 2, "pending": 2}
    await cluster.coordinator.experiments.resume(experiment)
    await cluster.settle()
    _, _, third, fourth = await trials(cluster, experiment)
    await run_trial(cluster, third.job_id, 0.5)
    view = await read(cluster, experiment)
    assert (view.state, view.reason) == ("running", f"trial 3 has no objective: {why}")
    await run_trial(cluster, fourth.job_id, 0.5)
    view = await read(cluster, experiment)
    assert (view.state, view.counts) == ("failed", {"completed": 4})


@pytest.mark.parametrize("repeats", [1, 2])
async def test_end_without_best_trial_names_the_metrics(
    cluster: SimulatedCluster, repeats: int
) -> None:
    await cluster.add_node("alpha", 2)
    objective = {"metric": "eval_acc", "goal": "max"}
    experiment = await create(cluster, objective=objective, space={RATE: [0.1]}, repeats=repeats)
    for trial in await trials(cluster, experiment):
        await run_trial(cluster, trial.job_id, 0.5)
    of_all = "" if repeats == 1 else " for every repeat"
    first = "trial 1" if repeats == 1 else "trial 1, repeat 1"
    completed = f"{repeats} of {repeats} runs completed"
    assert (await read(cluster, experiment)).reason == (
        f"{completed}; no trial has a value of eval_acc{of_all}; {first}: did you "
        "mean eval_accuracy? The job reports eval_accuracy, not eval_acc"
    )


async def test_reason_says_when_all_runs_are_started(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, space={RATE: [0.1, 0.2, 0.3]})
    assert (await read(cluster, experiment)).reason == "at most 2 unfinished at a time"
    first, *_ = await trials(cluster, experiment)
    await run_trial(cluster, first.job_id, 0.5)
    assert (await read(cluster, experiment)).reason == "all runs are started"
    experiments = cluster.coordinator.experiments
    await experiments.pause(experiment)
    assert (await experiments.resume(experiment)).reason == "all runs are started"


async def test_experiment_explains_runs_that_never_fit(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    fits, large = await create(cluster), await create(cluster, job=LARGE)
    assert (await read(cluster, large)).reason == (
        "none of its unfinished runs can start: needs 8 CPU slots; the whole cluster has 4 CPU "
        "slots: add a node with `trainhall nodes add`, or request fewer workers"
    )
    listed = (await cluster.coordinator.experiments.list()).items
    assert [(each.id, each.state, each.reason_code) for each in listed] == [
        (large, "running", "no_run_fits"), (fits, "running", "trials_run"),
    ]  # fmt: skip
    await cluster.add_node("beta", 8)
    await cluster.heartbeat()
    assert (await read(cluster, large)).reason_code == "trials_run"


@on_sqlite
async def test_experiment_explains_runs_above_a_quota(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 8)
    cluster.options = replace(cluster.options, quotas=Quotas(users={"ada": 4}))
    cluster.start_coordinator()
    for node in cluster.nodes.values():
        await cluster.connect(node)
    large = await create(cluster, job={**LARGE, "user": "ada"})
    view = await read(cluster, large)
    assert (view.state, view.reason_code) == ("running", "no_run_fits")
    assert "the quota of user ada is 4 devices, so it can never start" in view.reason
    cluster.options = replace(cluster.options, quotas=Quotas())
    cluster.start_coordinator()
    for node in cluster.nodes.values():
        await cluster.connect(node)
    await cluster.heartbeat()
    assert (await read(cluster, large)).reason_code == "trials_run"


async def test_experiment_fails_without_a_completed_trial(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    experiment = await create(cluster, space={RATE: [0.1, 0.2]}, parallel=1)
    for _ in range(2):
        job = next(t.job_id for t in await trials(cluster, experiment) if t.state == "starting")
        await cluster.coordinator.jobs.cancel(str(job))
        await cluster.run_until(str(job), "cancelled")
    view = await read(cluster, experiment)
    assert (view.state, view.reason) == ("failed", "0 of 2 runs completed")
    assert view.counts == {"cancelled": 2}


async def test_pause_and_resume_take_the_jobs_along(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    experiments, jobs = cluster.coordinator.experiments, cluster.coordinator.jobs
    experiment = await create(cluster, parallel=3)
    first, second, third, _ = await trials(cluster, experiment)
    await cluster.run_until(str(first.job_id), "running")
    await jobs.pause(str(third.job_id))
    await cluster.run_until(str(third.job_id), "paused")
    assert (await read(cluster, experiment)).allowed_commands == ["pause", "cancel"]
    assert (await experiments.pause(experiment)).state == "paused"
    paused = await experiments.pause(experiment)
    assert (paused.state, paused.allowed_commands) == ("paused", ["resume", "cancel"])
    await cluster.settle()
    # Resumed before its job has saved: it is resumed once it has.
    await experiments.resume(experiment)
    await cluster.settle()
    assert (await cluster.job(str(first.job_id))).state == "pausing"
    await experiments.pause(experiment)
    await cluster.run_until(str(first.job_id), "paused")
    await cluster.run_until(str(second.job_id), "paused")
    reasons = [e.reason for e in (await jobs.events(str(first.job_id))).items]
    assert f"paused by a user with “rates” (experiment {experiment})" in reasons
    # What a user cancels meanwhile leaves room for no other trial.
    await jobs.cancel(str(second.job_id))
    await cluster.heartbeat(1)
    assert (await read(cluster, experiment)).counts == {"paused": 2, "cancelled": 1, "pending": 1}
    await experiments.resume(experiment)
    await cluster.settle()
    await cluster.run_until(str(first.job_id), "running")
    # The user's own pause stays.
    assert (await cluster.job(str(third.job_id))).state == "paused"
    assert (await trials(cluster, experiment))[3].job_id is not None


async def test_commands_name_the_user_on_each_job(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 4)
    maria = Principal("maria", True, "token")
    experiments = cluster.coordinator.experiments.limited_to(maria)
    experiment = await create(cluster, parallel=2)
    job = str((await trials(cluster, experiment))[0].job_id)
    await cluster.run_until(job, "running")
    assert (await experiments.pause(experiment)).reason == "paused by maria"
    await cluster.run_until(job, "paused")
    label = f"“rates” (experiment {experiment})"
    assert (await cluster.job(job)).reason == f"paused by maria with {label}"
    assert (await experiments.cancel(experiment)).reason == "cancelled by maria"
    await cluster.run_until(job, "cancelled")
    reasons = {trial.reason for trial in await trials(cluster, experiment)}
    assert reasons == {f"cancelled by maria with {label}"}
    events = (await cluster.coordinator.jobs.events(job, limit=1000)).items
    assert {e.data["user"] for e in events if e.code == "experiment_paused"} == {"maria"}


async def test_cancel_ends_jobs_and_starts_no_more(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiments = cluster.coordinator.experiments
    experiment = await create(cluster)
    running = (await trials(cluster, experiment))[0]
    await cluster.run_until(str(running.job_id), "running")
    view = await experiments.cancel(experiment)
    assert (view.state, view.allowed_commands, view.finished_at) == ("cancelled", [], None)
    await cluster.run_until(str(running.job_id), "cancelled")
    view = await experiments.cancel(experiment)
    assert view.counts == {"cancelled": 4}
    reasons = {trial.reason for trial in await trials(cluster, experiment)}
    assert reasons == {f"cancelled by a user with “{view.name}” (experiment {experiment})"}
    assert view.finished_at is not None
    for command in (experiments.pause, experiments.resume):
        with pytest.raises(WrongStateError, match="it is cancelled"):
            await command(experiment)
    with pytest.raises(WrongStateError, match="only a paused experiment"):
        await experiments.resume(await create(cluster))


async def test_experiments_and_trials_are_listed_in_pages(cluster: SimulatedCluster) -> None:
    experiments = cluster.coordinator.experiments
    ids = [await create(cluster) for _ in range(3)]
    page = await experiments.list(limit=2)
    rest = await experiments.list(limit=2, cursor=page.next_cursor)
    assert [e.id for e in (*page.items, *rest.items)] == ids[::-1]
    assert rest.next_cursor is None
    listed = await experiments.trials(ids[0], limit=3)
    following = await experiments.trials(ids[0], limit=3, cursor=listed.next_cursor)
    assert [t.number for t in (*listed.items, *following.items)] == [1, 2, 3, 4]
    assert following.next_cursor is None
    with pytest.raises(InvalidCursorError):
        await experiments.list(cursor="x")
    for call in (experiments.get, experiments.trials, experiments.pause, experiments.cancel):
        with pytest.raises(NotFoundError, match="no experiment 'nothing'"):
            await call("nothing")


async def test_refused_experiment_leaves_nothing(cluster: SimulatedCluster) -> None:
    job = {"name": "a", "code": "0" * 64, "script": {"path": "train.py", "args": ["${a}"]}}
    with pytest.raises(ExperimentError, match=r"job\.code: no code with this SHA-256"):
        await create(cluster, job=job, space={"parameters.a": [1]})
    with pytest.raises(ExperimentError, match=RATE):
        await create(cluster, space={RATE: [0.1, -1]})
    assert (await cluster.coordinator.experiments.list()).items == []


@pytest.mark.side_by_side
async def test_experiments_are_created_side_by_side(cluster: SimulatedCluster) -> None:
    create_one = cluster.coordinator.experiments.create
    created = await asyncio.gather(*(create_one(sweep()) for _ in range(20)))
    assert len({view.id for view, _ in created}) == 20


@pytest.mark.side_by_side
async def test_two_coordinators_start_no_trial_twice(cluster: SimulatedCluster) -> None:
    experiment = (await cluster.coordinator.experiments.create(sweep(parallel=4)))[0].id
    first = cluster.coordinator
    cluster.start_coordinator()
    second = cluster.coordinator
    await asyncio.gather(*(c.reconciler.settle() for c in (first, second) * 2))
    for _ in range(3):
        await second.reconciler.settle()
    jobs = (await second.jobs.list()).items
    assert len(jobs) == 4
    assert {t.job_id for t in await trials(cluster, experiment)} == {job.id for job in jobs}


async def test_code_of_pending_trials_is_kept(cluster: SimulatedCluster) -> None:
    code = cluster.folder / "code" / ("0" * 64)
    code.parent.mkdir(parents=True, exist_ok=True)
    code.touch()
    async with cluster.db.transaction() as session:
        await cluster.coordinator.code.keep(session, code.name, DEFAULT_PROJECT)
    job = {"name": "a", "code": code.name, "script": {"path": "train.py", "args": ["${a}"]}}
    experiments = cluster.coordinator.experiments
    view, _ = await experiments.create(sweep(job=job, space={"parameters.a": [1]}))
    os.utime(code, (0, 0))
    assert await cluster.coordinator.code.sweep(3600) == []
    await experiments.cancel(view.id)
    await cluster.settle()
    assert await cluster.coordinator.code.sweep(3600) == [code.name]


async def test_trial_without_a_job_fails_with_the_reason(cluster: SimulatedCluster) -> None:
    experiment = await create(cluster, parallel=1, space={RATE: [0.1, 0.2]})
    (first, _) = await trials(cluster, experiment)
    async with cluster.db.transaction() as session:
        # As after an upgrade to a version that accepts less, and in mock mode, which forgets jobs.
        await session.execute(
            update(Trial).where(Trial.number == 2).values(values={"training.steps": -1})
        )
        await session.execute(delete(Job).where(Job.id == first.job_id))
    await cluster.settle()
    listed = await trials(cluster, experiment)
    assert [t.state for t in listed] == ["failed", "failed"]
    assert listed[0].reason == "its job was deleted"
    assert listed[1].reason.startswith("could not be started: training.steps: must be at least 1")
    assert (await read(cluster, experiment)).state == "failed"


async def test_experiment_of_another_version_ends_with_its_jobs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, parallel=1, space={RATE: [0.1, 0.2]})
    (first, _) = await trials(cluster, experiment)
    async with cluster.db.transaction() as session:
        row = await session.get_one(Experiment, experiment)
        row.spec = {**row.spec, "method": "of_a_newer_version"}
    await run_trial(cluster, first.job_id, 0.5)
    first, second = await trials(cluster, experiment)
    assert (first.state, second.state) == ("completed", "failed")
    assert second.reason.startswith("could not be started: method: ")
    assert (await read(cluster, experiment)).state == "completed"


async def test_events_are_logged_after_their_commit(cluster: SimulatedCluster) -> None:
    with capture_logs() as entries:
        with suppress(ZeroDivisionError):
            async with cluster.db.transaction() as session:
                log_committed(session, "trial_started", trial=1)
                raise ZeroDivisionError
        async with cluster.db.transaction() as session:
            log_committed(session, "trial_started", trial=2)
            assert entries == []
    assert [entry["trial"] for entry in entries] == [2]


async def test_experiment_with_a_started_run_does_not_finish(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may command its job between the statements that read it, so that neither has it."""

    async def count(*_: Any) -> dict[str, dict[str, int]]:
        return {}

    monkeypatch.setattr(loading, "_count_idle", count)
    await cluster.add_node("alpha", 1)
    experiment = await create(cluster, space={RATE: [0.1]})
    assert (await read(cluster, experiment)).finished_at is None
    await cluster.coordinator.experiments.cancel(experiment)
    await cluster.settle()
    assert (await read(cluster, experiment)).finished_at is None
    await cluster.work(5)
    assert (await read(cluster, experiment)).finished_at is not None
