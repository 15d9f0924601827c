"""Simulated ranks behave like real ones towards the real coordinator."""

import asyncio
import math
from itertools import pairwise
from pathlib import Path

import pytest
from support.working import WorkingCluster, in_virtual_time, spec

from trainhall.cluster.simulator.ranks import Fate
from trainhall.cluster.simulator.workload.curves import model_of
from trainhall.monitoring.logs import read_logs
from trainhall.monitoring.metrics import read_metrics
from trainhall.training.spec.parse import validate_spec

TIMINGS = {
    "step_seconds", "data_seconds", "forward_seconds", "backward_seconds",
    "communication_seconds", "communication_hidden_seconds", "optimizer_seconds",
    "peak_memory_bytes",
}  # fmt: skip


@in_virtual_time
async def test_a_job_from_its_submission_to_its_result(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=2)
    job = await cluster.until(job_id, "completed")
    assert await cluster.states(job_id) == ["queued", "starting", "running", "completed"]
    assert (job.step, job.total_steps, job.attempt) == (100, 100, 1)
    loss = await cluster.curve(job_id, "loss")
    assert list(loss) == list(range(1, 101)), "every step once"
    values = list(loss.values())
    assert sum(values[-10:]) < sum(values[:10]) / 3
    series = await read_metrics(cluster.coordinator.db, job_id)
    by_rank: dict[int | None, set[str]] = {}
    for one in series:
        by_rank.setdefault(one.rank, set()).add(one.name)
    assert by_rank[0] == by_rank[1] == TIMINGS, "as the recorder of the training loop writes them"
    assert by_rank[None] == TIMINGS | {
        "loss", "learning_rate", "gradient_norm", "samples_per_second", "eval_loss",
    }  # fmt: skip
    assert list(await cluster.curve(job_id, "eval_loss")) == [50, 100]
    page = await read_logs(cluster.coordinator.db, job_id)
    text = "\n".join(line.text for line in page.items)
    assert "step 20/100  checkpoint saved" in text
    assert "completed at step 100/100" in text
    assert "\x1b[" in text, "some of it is coloured"
    kinds = {event.kind for event in await cluster.events(job_id)}
    assert {"state", "attempt", "checkpoint", "note"} <= kinds
    assert not any(host.shims() for host in cluster.hosts), "nothing is left on the hosts"


@in_virtual_time
async def test_the_phases_of_a_step_add_up(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=4)
    await cluster.until_step(job_id, 10)
    for rank in (0, 3):
        whole = await cluster.curve(job_id, "step_seconds", rank)
        names = sorted(
            TIMINGS - {"step_seconds", "communication_hidden_seconds", "peak_memory_bytes"}
        )
        parts = [await cluster.curve(job_id, name, rank) for name in names]
        for step, seconds in whole.items():
            assert seconds == pytest.approx(sum(part[step] for part in parts))


@in_virtual_time
async def test_stored_checkpoints_are_complete_and_retained(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit()
    await cluster.until_step(job_id, 70)
    service = cluster.coordinator.checkpoints
    page = await service.list(job_id)
    kept = [c for c in page.items if c.state == "committed"]
    assert [c.step for c in kept] == [60, 40]
    for checkpoint in kept:
        loss = checkpoint.metrics["loss"]
        assert isinstance(loss, float)
        assert loss > 0
        assert await service.verification.verify(checkpoint.id) == []
    await service.set_pinned(kept[1].id, True)
    await cluster.until(job_id, "completed")
    await service.uploads.housekeep()
    left = await service.list(job_id)
    assert [(c.step, c.pinned) for c in left.items] == [(100, False), (80, False), (40, True)]
    await service.set_pinned(kept[1].id, False)
    await service.delete(kept[1].id)
    assert [c.step for c in (await service.list(job_id)).items] == [100, 80]


@in_virtual_time
async def test_deleted_checkpoints_on_shared_storage_are_removed(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(checkpoint={"path": "/mnt/shared"})
    await cluster.until(job_id, "completed")
    await asyncio.sleep(10)
    page = await cluster.coordinator.checkpoints.list(job_id)
    assert [(c.step, c.state) for c in page.items] == [(100, "committed"), (80, "committed")]
    assert page.items[0].size > 2**30, "as large as the model's would be"


@in_virtual_time
async def test_simulated_resume_continues_from_paused_save(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=2)
    await cluster.until_step(job_id, 24)
    await cluster.coordinator.jobs.pause(job_id)
    paused = await cluster.until(job_id, "paused")
    (newest, *_) = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert newest.step == paused.step
    assert paused.step % 20, "between two checkpoints of the schedule"
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.until(job_id, "completed")
    reasons = [event.reason for event in await cluster.events(job_id)]
    assert f"resumed from step {paused.step}" in reasons
    assert list(await cluster.curve(job_id, "loss")) == list(range(1, 101))


@in_virtual_time
async def test_simulated_job_pauses_by_itself_at_its_steps(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=2, training={"pause_at": [33, 66]})
    for step in (33, 66):
        job = await cluster.until(job_id, "paused")
        assert (job.step, job.reason_code) == (step, "pause_at")
        assert job.reason == f"paused at step {step}, as training.pause_at says"
        await cluster.coordinator.jobs.resume(job_id)
    await cluster.until(job_id, "completed")
    assert list(await cluster.curve(job_id, "loss")) == list(range(1, 101))
    assert await cluster.states(job_id) == [
        *["queued", "starting", "running", "paused"] * 2,
        *["queued", "starting", "running", "completed"],
    ]


@in_virtual_time
async def test_cancel_then_restore(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit()
    await cluster.until_step(job_id, 44)
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.until(job_id, "cancelled")
    page = await cluster.coordinator.checkpoints.list(job_id)
    (older,) = [c for c in page.items if c.step == 20]
    await cluster.coordinator.checkpoints.restore(older.id)
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 2
    assert "resumed from step 20" in [event.reason for event in await cluster.events(job_id)]


@in_virtual_time
async def test_a_killed_rank_is_recovered_from(cluster: WorkingCluster) -> None:
    cluster.fates["unlucky", 1] = Fate("killed", 50, 1)
    job_id = await cluster.submit(workers=2, name="unlucky")
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 2
    first, _ = await cluster.coordinator.jobs.attempts(job_id)
    assert first.failure is not None
    assert (first.failure.rank, first.failure.signal) == (1, 9)
    assert first.failure.cause == "out_of_memory"
    assert "rank 1 was ended by SIGKILL" in first.reason
    assert "resumed from step 40" in [event.reason for event in await cluster.events(job_id)]
    assert "recovering" in await cluster.states(job_id)


@in_virtual_time
async def test_shown_ranks_regroup_in_place(cluster: WorkingCluster) -> None:
    cluster.fates["unlucky", 1] = Fate("killed", 50, 1)
    job_id = await cluster.submit(workers=3, name="unlucky", recovery={"regroup_seconds": 60})
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 1
    events = await cluster.events(job_id)
    assert [event.code for event in events if event.code in ("regrouped", "restarting")] == [
        "regrouped"
    ]
    assert list(await cluster.curve(job_id, "loss")) == list(range(1, 101))
    assert list(await cluster.curve(job_id, "step_seconds", 1)) == list(range(1, 101))


@in_virtual_time
async def test_simulated_job_that_never_fits_fails(cluster: WorkingCluster) -> None:
    for attempt in (1, 2):
        cluster.fates["large", attempt] = Fate("out of memory", 1, 0)
    job_id = await cluster.submit(name="large", recovery={"max_restarts": 3})
    job = await cluster.until(job_id, "failed")
    assert "CUDA out of memory" in job.reason
    assert "; not retried: it failed twice with the same error before a new step" in job.reason
    page = await read_logs(cluster.coordinator.db, job_id, stream="stderr")
    assert any("OutOfMemoryError" in line.text for line in page.items)
    causes = [
        a.failure and a.failure.cause for a in await cluster.coordinator.jobs.attempts(job_id)
    ]
    assert causes == ["out_of_memory"] * 2


@in_virtual_time
async def test_a_loss_that_is_no_number(cluster: WorkingCluster) -> None:
    cluster.fates["steep", 1] = Fate("diverges", 30)
    job_id = await cluster.submit(name="steep", recovery={"max_restarts": 0})
    job = await cluster.until(job_id, "failed")
    assert "the loss is nan at step 30; the newest checkpoint before it is of step 20" in job.reason
    loss = await cluster.curve(job_id, "loss")
    assert math.isnan(loss[30])
    assert loss[29] > 0
    assert job.metrics["learning_rate"] == pytest.approx(1e-3)


@in_virtual_time
async def test_a_host_that_was_away_for_a_while(cluster: WorkingCluster) -> None:
    """Its ranks went on, and nothing that they wrote is missing."""
    job_id = await cluster.submit(workers=4, training={"steps": 500})
    await cluster.until_step(job_id, 20)
    (name,) = [h.name for h in cluster.hosts if h.shims()]
    before = (await cluster.coordinator.jobs.get(job_id)).step
    cluster.host(name).link.part("loses")
    await asyncio.sleep(30)
    assert (await cluster.coordinator.nodes.get(cluster.host(name).node_id)).state == "suspect"
    assert (await cluster.coordinator.jobs.get(job_id)).step == before
    await cluster.reconnect(cluster.host(name))
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 1
    assert list(await cluster.curve(job_id, "loss")) == list(range(1, 501))


@in_virtual_time
async def test_a_host_that_lost_its_power(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=4)
    await cluster.until_step(job_id, 50)
    (name,) = [h.name for h in cluster.hosts if h.shims()]
    await cluster.host(name).power_off(lost_folders=0.0)
    await cluster.until_attempt(job_id, 2)
    await cluster.until(job_id, "running", step=0.5)
    (first, second) = await cluster.coordinator.jobs.attempts(job_id)
    assert first.state == "lost"
    assert second.allocation[0].node_name != name
    await cluster.reconnect(cluster.host(name))
    await asyncio.sleep(10)
    assert not cluster.host(name).shims(), "the void attempt is forgotten"
    await cluster.until(job_id, "completed")


@in_virtual_time
async def test_a_host_that_is_removed_drains_and_leaves(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=4)
    await cluster.until_step(job_id, 30)
    (host,) = [h for h in cluster.hosts if h.shims()]
    await cluster.coordinator.nodes.remove(host.node_id)
    await asyncio.sleep(10)
    assert host not in cluster.hosts
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 2
    assert list(await cluster.curve(job_id, "loss")) == list(range(1, 101)), (
        "it saved before it moved"
    )


@in_virtual_time
async def test_simulated_rank_failure_ends_other_host(cluster: WorkingCluster) -> None:
    cluster.fates["wide", 1] = Fate("error", 10, 7)
    job_id = await cluster.submit(workers=8, name="wide", training={"global_batch_size": 64})
    job = await cluster.until(job_id, "completed")
    assert job.attempt == 2
    first, second = await cluster.coordinator.jobs.attempts(job_id)
    assert "(node gpu-" in first.reason
    assert len(second.allocation) == 2
    assert len(await cluster.curve(job_id, "step_seconds", 7)) == 100


@in_virtual_time
async def test_a_script_talks_and_measures_little(cluster: WorkingCluster) -> None:
    script = {"name": "tune", "script": {"path": "/srv/tune.py", "args": ["--fast"]},
              "resources": {"workers": 2, "device": "cuda"}}  # fmt: skip
    view, _ = await cluster.coordinator.jobs.submit(spec().model_validate(script))
    await cluster.until_step(view.id, 5)
    await cluster.coordinator.jobs.pause(view.id)
    await cluster.until(view.id, "paused")
    await cluster.coordinator.jobs.resume(view.id)
    await cluster.until(view.id, "completed")
    page = await read_logs(cluster.coordinator.db, view.id)
    text = "\n".join(line.text for line in page.items)
    assert "$ /srv/tune.py --fast" in text
    assert "SIGTERM" in text
    names = {one.name for one in await read_metrics(cluster.coordinator.db, view.id)}
    assert names == {"loss", "tokens_per_second"}


@in_virtual_time
async def test_devices_follow_the_work(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=4)
    await cluster.until_step(job_id, 40)
    await asyncio.sleep(4)
    await cluster.coordinator.gateway.flush_readings()
    devices = await cluster.coordinator.nodes.devices()
    busy = [d for d in devices if d.job_id == job_id]
    idle = [d for d in devices if d.job_id is None]
    assert len(busy) == len(idle) == 4
    for device in busy:
        assert device.utilization is not None
        assert device.power is not None
        assert device.utilization > 50
        assert device.power > 250
    for one, other in pairwise(idle):
        assert one.utilization == other.utilization == 0
    assert min(d.temperature or 0 for d in busy) > max(d.temperature or 0 for d in idle)
    assert min(d.memory_used or 0 for d in busy) > 2**30


def test_a_seed_repeats_everything(tmp_path: Path) -> None:
    outcomes = []

    @in_virtual_time
    async def play(cluster: WorkingCluster) -> None:
        cluster.fates["again", 1] = Fate("killed", 33, 1)
        job_id = await cluster.submit(workers=3, name="again")
        await cluster.until(job_id, "completed")
        events = [(e.kind, e.reason, e.time) for e in await cluster.events(job_id)]
        outcomes.append((job_id, events, await cluster.curve(job_id, "loss")))

    for name in ("one", "other"):
        play(tmp_path / name)
    assert outcomes[0] == outcomes[1]


def test_simulated_own_task_has_its_parameters() -> None:
    task = {"name": "lab.tasks:Mine", "params": {"samples": "many"}}
    assert model_of(validate_spec({"name": "mine", "task": task})).samples > 0


@in_virtual_time
async def test_simulated_host_plans_and_measures(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=2, parallelism={"strategy": "auto"})
    job = await cluster.until(job_id, "completed")
    assert job.plan is not None
    assert job.plan.summary == "ddp (data 2)"
    assert job.plan.measured is not None
    assert job.plan.measured.steps == 100
    assert job.plan.error is not None
    assert 0 < job.plan.error.step_seconds < 0.5
    again = await cluster.submit(workers=2, parallelism={"strategy": "auto"})
    corrected = await cluster.until(again, "completed")
    assert corrected.plan is not None
    assert corrected.plan.calibration.runs == 1
    assert corrected.plan.error is not None
    assert abs(corrected.plan.error.step_seconds) < job.plan.error.step_seconds


@in_virtual_time
async def test_simulated_host_reports_that_nothing_fits(cluster: WorkingCluster) -> None:
    huge = {"name": "synthetic", "params": {"step_seconds": 9.0}}
    job_id = await cluster.submit(
        workers=3, task=huge, training={"steps": 5, "global_batch_size": 7},
        parallelism={"strategy": "auto"},
    )  # fmt: skip
    job = await cluster.until(job_id, "failed")
    assert job.attempt == 1
    assert "no strategy can train this job on so many workers" in job.reason


@in_virtual_time
async def test_simulated_gradients_are_reported_on_request(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(workers=2, training={"capture_gradients_every_steps": 25})
    await cluster.until_step(job_id, 30)
    service = cluster.coordinator.gradients
    await service.ask(job_id)
    await asyncio.sleep(6.0)
    asked, found = await service.history(job_id, 100)
    assert asked.answered == 1
    norms = await cluster.curve(job_id, "gradient_norm")
    for record in found:
        squares = [norm**2 for norm in record.norms if isinstance(norm, float)]
        assert math.sqrt(sum(squares)) == pytest.approx(norms[record.step], rel=1e-4)
    (one,) = [record for record in found if record.request]
    _, histograms = await service.one(job_id, one.step)
    assert histograms is not None
    sizes = dict(zip(one.names, histograms, strict=True))
    assert list(sizes) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert sum(sizes["0.bias"]["counts"]) == 64
    await cluster.until(job_id, "completed")
    _, found = await service.history(job_id, 100)
    assert [record.step for record in found if not record.request] == [25, 50, 75, 100]


@in_virtual_time
async def test_simulated_pipeline_reports_waiting_time(cluster: WorkingCluster) -> None:
    job_id = await cluster.submit(
        workers=2, parallelism={"strategy": "pipeline", "microbatches": 4}
    )
    await cluster.until_step(job_id, 20)
    measured = await cluster.curve(job_id, "bubble_fraction")
    expected = await cluster.curve(job_id, "bubble_fraction_expected")
    assert set(expected.values()) == {1 / 5}
    assert all(0.2 < share < 0.4 for share in measured.values())
