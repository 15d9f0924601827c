"""Records of checkpoints: what counts, what is kept, restored, found damaged."""

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster, failure
from support.database import on_sqlite
from support.storage.stored import FILES, NAME, manifest, pieces, upload_and_commit

from trainhall.cluster.checkpoints import verification
from trainhall.cluster.checkpoints.commands import CheckpointCommand
from trainhall.cluster.errors import (
    InvalidCursorError,
    NotFoundError,
    RevokedError,
    WrongStateError,
)
from trainhall.training.checkpoint.format import manifest as manifests
from trainhall.training.checkpoint.format.errors import Problem
from trainhall.training.checkpoint.format.manifest import verify_folder
from trainhall.training.link.events import RankEvent
from trainhall.training.link.launch import Unrecorded
from trainhall.training.link.status import Outcome
from trainhall.training.spec import SpecError


async def running_job(cluster: SimulatedCluster, **checkpoint: object) -> str:
    if not cluster.nodes:
        await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(checkpoint=checkpoint)
    await cluster.run_until(job_id, "running")
    return job_id


async def stored(cluster: SimulatedCluster) -> tuple[str, Path]:
    """A job's checkpoint, and where it lies in the store."""
    job_id = await running_job(cluster, path=None)
    service = cluster.coordinator.checkpoints
    for path, data in {**FILES, "manifest.json": manifest(FILES, job_id)}.items():
        await service.uploads.receive(job_id, NAME, path, pieces(data))
    await service.uploads.commit(job_id, NAME)
    await cluster.report_event(job_id, "checkpoint", {"name": NAME, "step": 10, "size": 5})
    return job_id, cluster.coordinator.store.file(job_id, NAME, "state.json").parent


def verifying() -> list["asyncio.Task[Any]"]:
    """Verifications that run in the background."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("verify")]


async def verified() -> None:
    while tasks := verifying():
        await asyncio.wait(tasks)


async def start_again(cluster: SimulatedCluster, job_id: str) -> list[str]:
    """The checkpoints that the job's next attempt may start from, after a pause and a resume."""
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    (node,) = cluster.nodes.values()
    return node.running(job_id).assignment.launch.checkpoint.resume


async def pause(cluster: SimulatedCluster, job_id: str) -> None:
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")


async def steps_of(cluster: SimulatedCluster, job_id: str) -> list[int]:
    page = await cluster.coordinator.checkpoints.list(job_id)
    return [view.step for view in page.items]


async def test_upload_mode_records_only_committed_checkpoints(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, path=None)
    service = cluster.coordinator.checkpoints
    (node,) = cluster.nodes.values()
    plan = node.running(job_id).assignment.launch.checkpoint
    assert (plan.folder, plan.upload) == ("", True)
    await cluster.report_event(job_id, "checkpoint", {"name": NAME, "step": 10, "size": 5})
    assert await steps_of(cluster, job_id) == []
    for path, data in FILES.items():
        await service.uploads.receive(job_id, NAME, path, pieces(data))
    await service.uploads.receive(job_id, NAME, "manifest.json", pieces(manifest(FILES, job_id)))
    await service.uploads.commit(job_id, NAME)
    for _ in range(2):
        await cluster.report_event(job_id, "checkpoint", {"name": NAME, "step": 10, "size": 5})
    assert await steps_of(cluster, job_id) == [10]
    assert cluster.coordinator.store.file(job_id, NAME, "state.json").read_bytes() == b"{}"
    (view,) = (await service.list(job_id)).items
    assert (await service.delete(view.id)).state == "deleting"
    assert (await service.get(view.id)).state == "deleted"
    with pytest.raises(NotFoundError):
        cluster.coordinator.store.file(job_id, NAME, "state.json")


async def test_a_revoked_token_commits_nothing(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, path=None)
    (node,) = cluster.nodes.values()
    await cluster.disconnect(node)
    cluster.clock.advance(100)
    await cluster.settle()
    service = cluster.coordinator.checkpoints
    with pytest.raises(RevokedError):
        await service.uploads.receive(job_id, NAME, "state.json", pieces(b"{}"))
    with pytest.raises(RevokedError, match=rf"^attempt 1 of “test” \({job_id}\) was superseded"):
        await service.uploads.commit(job_id, NAME)
    with pytest.raises(NotFoundError, match=rf"^there is no attempt '9 of “test” \({job_id}\)'$"):
        await service.uploads.commit(job_id, "step-00000010-a9-g1")
    with pytest.raises(NotFoundError):
        await service.uploads.commit("nothing", NAME)


async def test_commit_under_revoked_token_is_removed(
    cluster: SimulatedCluster,
) -> None:
    job_id = await running_job(cluster, path=None)
    service, store = cluster.coordinator.checkpoints, cluster.coordinator.store
    later = NAME.replace("10-a", "20-a")
    for name, step in ((NAME, 10), (later, 20)):
        for path, data in {**FILES, "manifest.json": manifest(FILES, job_id, step)}.items():
            await service.uploads.receive(job_id, name, path, pieces(data))
        await service.uploads.commit(job_id, name)
    await cluster.report_event(job_id, "checkpoint", {"name": NAME, "step": 10, "size": 5})
    await service.uploads.remove_unrecorded()
    assert await store.committed() == {(job_id, NAME), (job_id, later)}, "its rank may report it"
    (node,) = cluster.nodes.values()
    await cluster.disconnect(node)
    cluster.clock.advance(100)
    await cluster.settle()
    await service.uploads.remove_unrecorded()
    assert await store.committed() == {(job_id, NAME)}


async def test_housekeeping_keeps_checkpoints_of_another_database(
    cluster: SimulatedCluster,
) -> None:
    await upload_and_commit(cluster.coordinator.store)
    await cluster.coordinator.checkpoints.uploads.remove_unrecorded()
    assert await cluster.coordinator.store.committed() == {("job", NAME)}


async def test_the_newest_and_the_pinned_are_kept(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=2)
    service = cluster.coordinator.checkpoints
    await cluster.save_checkpoint(job_id, 10)
    (first,) = (await service.list(job_id)).items
    assert (await service.set_pinned(first.id, True)).pinned
    for step in (20, 30, 40):
        await cluster.save_checkpoint(job_id, step)
    views = {v.step: v for v in (await service.list(job_id)).items}
    assert {s: v.state for s, v in views.items()} == {
        40: "committed", 30: "committed", 20: "deleting", 10: "committed",
    }  # fmt: skip
    with pytest.raises(WrongStateError, match="unpin"):
        await service.delete(first.id)
    assert views[40].refused_commands == {CheckpointCommand.UNPIN: "It is not pinned."}
    assert views[10].refused_commands == {
        CheckpointCommand.PIN: "It is already pinned.",
        CheckpointCommand.DELETE: "It is pinned; unpin it first.",
    }
    assert views[20].refused_commands[CheckpointCommand.RESTORE] == (
        "It is deleting; restore another one."
    )
    (node,) = cluster.nodes.values()
    await cluster.heartbeat()
    assert node.released == {f"/shared/{job_id}/step-00000020-a1-g1"}
    assert await steps_of(cluster, job_id) == [40, 30, 10], "the agent has removed it"
    await cluster.heartbeat()
    assert node.removed == []
    page = await service.list(job_id, limit=2)
    rest = await service.list(job_id, limit=2, cursor=page.next_cursor)
    assert [v.step for v in rest.items] == [10]
    with pytest.raises(InvalidCursorError):
        await service.list(job_id, cursor="x")


async def test_next_attempt_looks_for_unreported_checkpoints(
    cluster: SimulatedCluster,
) -> None:
    job_id = await running_job(cluster, path="/shared")
    (node,) = cluster.nodes.values()
    assert node.running(job_id).assignment.launch.checkpoint.unrecorded is None
    await cluster.save_checkpoint(job_id, 10)

    async def next_one() -> Unrecorded | None:
        cluster.clock.advance(60)
        await cluster.heartbeat()
        await cluster.run_until(job_id, "running")
        return node.running(job_id).assignment.launch.checkpoint.unrecorded

    await cluster.finish(job_id, Outcome.FAILED, failure())
    assert await next_one() == Unrecorded(attempt=1, generation=1, after_step=10)
    await cluster.finish(job_id, Outcome.FAILED, failure(2))
    assert await next_one() == Unrecorded(attempt=2, generation=1, after_step=-1)
    # What a revoked attempt commits does not count.
    await cluster.disconnect(node)
    cluster.clock.advance(cluster.options.lost_after_seconds)
    await cluster.settle()
    assert (await cluster.job(job_id)).state == "recovering"
    await cluster.connect(node)
    assert await next_one() == Unrecorded(attempt=2, generation=1, after_step=-1)


@on_sqlite
async def test_late_report_of_earlier_attempt_is_resumed_from(
    cluster: SimulatedCluster,
) -> None:
    """The second attempt resumes from an unreported checkpoint of the first, and fails before it
    saves one itself."""
    job_id = await running_job(cluster, path="/shared")
    (node,) = cluster.nodes.values()

    async def next_one() -> tuple[list[str], Unrecorded | None]:
        cluster.clock.advance(60)
        await cluster.heartbeat()
        await cluster.run_until(job_id, "running")
        plan = node.running(job_id).assignment.launch.checkpoint
        return plan.resume, plan.unrecorded

    async def report_first(step: int) -> str:
        name = f"step-{step:08d}-a1-g1"
        event = RankEvent(
            sequence=step + 1,
            time=cluster.clock.now().timestamp(),
            rank=0,
            kind="checkpoint",
            data={"name": name, "step": step, "size": 10, "metrics": {}},
        )
        await cluster.coordinator.rank_events.accept(job_id, 1, "recovered-00000000", [event])
        return name

    before = await cluster.save_checkpoint(job_id, 5)
    await cluster.finish(job_id, Outcome.FAILED, failure())
    assert await next_one() == ([before], Unrecorded(attempt=1, generation=1, after_step=5))
    first, second = await report_first(10), await report_first(20)
    await cluster.finish(job_id, Outcome.FAILED, failure(2))
    names, unrecorded = await next_one()
    assert names == [second, first, before]
    assert unrecorded == Unrecorded(attempt=2, generation=1, after_step=-1)
    # And what the third one saves comes before them.
    saved = await cluster.save_checkpoint(job_id, 15)
    await cluster.finish(job_id, Outcome.FAILED, failure(3))
    assert (await next_one())[0] == [saved, second, first]


@on_sqlite
async def test_revoked_attempt_passes_on_its_unrecorded_checkpoints(
    cluster: SimulatedCluster,
) -> None:
    job_id = await running_job(cluster, path="/shared")
    (node,) = cluster.nodes.values()

    async def next_one() -> Unrecorded | None:
        cluster.clock.advance(60)
        await cluster.heartbeat()
        await cluster.run_until(job_id, "running")
        return node.running(job_id).assignment.launch.checkpoint.unrecorded

    async def lose() -> None:
        await cluster.disconnect(node)
        cluster.clock.advance(cluster.options.lost_after_seconds)
        await cluster.settle()
        await cluster.connect(node)

    await cluster.finish(job_id, Outcome.FAILED, failure())
    of_the_first = Unrecorded(attempt=1, generation=1, after_step=-1)
    assert await next_one() == of_the_first
    await lose()
    assert await next_one() == of_the_first
    # Its own recorded checkpoint is newer than all of those.
    await cluster.save_checkpoint(job_id, 10)
    await lose()
    assert await next_one() is None


async def test_restore_restarts_a_finished_job_at_older_step(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=10)
    for step in (10, 20, 30):
        await cluster.save_checkpoint(job_id, step)
    service = cluster.coordinator.checkpoints
    views = {v.step: v for v in (await service.list(job_id)).items}
    with pytest.raises(WrongStateError, match="running"):
        await service.restore(views[20].id)
    await cluster.finish(job_id)
    completed = await cluster.job(job_id)
    assert (completed.state, "restore" in completed.allowed_commands) == ("completed", True)
    with pytest.raises(SpecError, match="workers"):
        await service.restore(views[20].id, resources={"workers": 0})
    assert (await cluster.job(job_id)).state == "completed"
    restored = await service.restore(
        views[20].id, resources={"workers": 2}, parallelism={"strategy": "fsdp"}
    )
    assert (restored.spec or {})["parallelism"]["strategy"] == "fsdp"
    assert (restored.spec or {})["parallelism"]["data"] is None, "it followed from the old strategy"
    assert (restored.state, restored.world_size, restored.finished_at) == ("queued", 2, None)
    await cluster.settle()
    await cluster.run_until(job_id, "running")
    (node,) = cluster.nodes.values()
    launch = node.running(job_id).assignment.launch
    names = [f"step-000000{s}-a1-g1" for s in (20, 10)]
    assert launch.checkpoint.resume == names, "what lies beyond the restored step is left out"
    assert launch.spec.resources.workers == 2
    await cluster.save_checkpoint(job_id, 25)
    await pause(cluster, job_id)
    assert await start_again(cluster, job_id) == ["step-00000025-a2-g1", *names]


@on_sqlite
async def test_restore_with_other_strategy_drops_the_algorithm(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", 2)
    synchronised = {"gradient_sync": {"algorithm": "ring"}}
    job_id = await cluster.submit(workers=2, parallelism=synchronised)
    await cluster.run_until(job_id, "running")
    await cluster.save_checkpoint(job_id, 10)
    await cluster.finish(job_id)
    service = cluster.coordinator.checkpoints
    (view,) = (await service.list(job_id)).items
    restored = await service.restore(view.id, resources={"workers": 1})
    assert (restored.spec or {})["parallelism"]["gradient_sync"]["algorithm"] == "ring"
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id)
    restored = await service.restore(view.id, parallelism={"strategy": "fsdp"})
    assert (restored.spec or {})["parallelism"]["gradient_sync"]["algorithm"] == "native"


@on_sqlite
@pytest.mark.parametrize("stored_is_bad", [False, True])
async def test_damaged_host_copy_does_not_mark_the_store(
    cluster: SimulatedCluster, stored_is_bad: bool
) -> None:
    job_id, folder = await stored(cluster)
    if stored_is_bad:
        (folder / "state.json").write_bytes(b"[]")
    passed_over = [{"name": NAME, "reason": "damaged", "text": "on rank 1: state.json"}, 7, {}]
    await cluster.report_event(
        job_id, "started", {"resumed_from": None, "passed_over": passed_over}
    )
    await verified()
    (view,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert view.state == ("corrupt" if stored_is_bad else "committed")


@on_sqlite
async def test_removed_stored_checkpoint_is_marked(
    cluster: SimulatedCluster,
) -> None:
    job_id, folder = await stored(cluster)
    shutil.rmtree(folder)
    passed_over = [
        {"name": NAME, "reason": "missing", "text": "no host has a good copy: not found"}
    ]
    await cluster.report_event(job_id, "started", {"resumed_from": 5, "passed_over": passed_over})
    await verified()
    (view,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert view.state == "corrupt"
    events = (await cluster.coordinator.jobs.events(job_id, limit=500)).items
    assert "the folder: expected a folder, found nothing" in events[-1].reason


@on_sqlite
async def test_reports_do_not_wait_for_verification(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = await stored(cluster)
    hashed: list[Path] = []
    gate = threading.Event()

    def verify(folder: Path) -> list[Problem]:
        hashed.append(folder)
        gate.wait(60)
        return []

    monkeypatch.setattr(verification, "verify_folder", verify)
    passed_over = [{"name": NAME, "reason": "damaged", "text": "on rank 1: state.json"}]
    data = {"resumed_from": None, "passed_over": passed_over}
    events = [RankEvent(sequence=n, time=1.7e9, rank=0, kind="started", data=data) for n in (1, 2)]
    accept = cluster.coordinator.rank_events.accept
    try:
        async with asyncio.timeout(30):
            assert await accept(job_id, 1, "0-bbbbbbbb", events[:1]) == 1
        gate.set()
        await verified()
        assert await accept(job_id, 1, "0-bbbbbbbb", events[:1]) == 1
        assert (verifying(), len(hashed)) == ([], 1), "what is repeated is not verified again"
        gate.clear()
        await accept(job_id, 1, "0-bbbbbbbb", events)
        assert verifying()
        await cluster.coordinator.stop()
        assert not verifying()
    finally:
        gate.set()


@on_sqlite
async def test_resume_with_changes_keeps_the_lineage(
    cluster: SimulatedCluster,
) -> None:
    """It was to go back to an older checkpoint, and was paused before it did."""
    job_id = await running_job(cluster, keep_latest=4)
    for step in (5, 10):
        await cluster.save_checkpoint(job_id, step)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    _, older = (await cluster.coordinator.checkpoints.list(job_id)).items
    await cluster.coordinator.checkpoints.restore(older.id)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.coordinator.jobs.resume(
        job_id, resources={"workers": 1}, parallelism={"strategy": "fsdp"}
    )
    job = await cluster.run_until(job_id, "running")
    assert (job.attempt, job.world_size) == (2, 1)
    (node,) = cluster.nodes.values()
    launch = node.running(job_id).assignment.launch
    assert launch.spec.strategy == "fsdp"
    assert launch.checkpoint.resume == [older.location.rpartition("/")[2]]


@on_sqlite
async def test_unloadable_checkpoint_is_marked(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=4)
    for step in (5, 10, 20, 30):
        await cluster.save_checkpoint(job_id, step)
    await pause(cluster, job_id)
    await start_again(cluster, job_id)
    passed_over = [
        {"name": "step-00000030-a1-g1", "reason": "gone", "text": "the folder: found nothing"},
        {"name": "step-00000020-a1-g1", "reason": "damaged", "text": "a: expected 5 bytes"},
        {"name": "step-00000010-a1-g1", "reason": "missing", "text": "rank 1 does not have it"},
        {"name": "step-00000005-a1-g1", "reason": "unreadable", "text": "permission denied"},
    ]
    payload = {"resumed_from": 5, "note": "damaged: words alone mark nothing"}
    await cluster.report_event(job_id, "started", {**payload, "passed_over": passed_over})
    states = {v.step: v.state for v in (await cluster.coordinator.checkpoints.list(job_id)).items}
    assert states == {30: "corrupt", 20: "corrupt", 10: "committed", 5: "committed"}
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.run_until(job_id, "cancelled")
    (corrupt, *_) = (await cluster.coordinator.checkpoints.list(job_id)).items
    with pytest.raises(WrongStateError, match="corrupt"):
        await cluster.coordinator.checkpoints.restore(corrupt.id)


@on_sqlite
async def test_job_with_only_damaged_checkpoints_is_not_restarted(
    cluster: SimulatedCluster,
) -> None:
    """Its ranks verify what they load: they report why, or find files that are whole again."""
    job_id = await running_job(cluster, keep_latest=4)
    service = cluster.coordinator.checkpoints
    for step in (5, 10):
        await cluster.save_checkpoint(job_id, step)
    newest, older = (await service.list(job_id)).items
    await pause(cluster, job_id)
    await service.verification.mark(newest.id, "state.json: found 1 byte")
    assert await start_again(cluster, job_id) == ["step-00000005-a1-g1"]
    await pause(cluster, job_id)
    await service.verification.mark(older.id, "state.json: found nothing")
    assert await start_again(cluster, job_id) == ["step-00000005-a1-g1"]
    assert any(
        "attempt 3 starts from step-00000005-a1-g1; its checkpoint is corrupt" in line
        for line in [e.reason for e in (await cluster.coordinator.jobs.events(job_id)).items]
    )
    # A restart is no other case, and what was removed is no reason.
    (node,) = cluster.nodes.values()
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await cluster.run_until(job_id, "running")
    assert node.running(job_id).assignment.launch.checkpoint.resume == ["step-00000005-a1-g1"]
    await pause(cluster, job_id)
    for view in (newest, older):
        await service.delete(view.id)
    assert await start_again(cluster, job_id) == []


@on_sqlite
async def test_stored_checkpoint_is_verified_after_failed_use(
    cluster: SimulatedCluster,
) -> None:
    job_id, folder = await stored(cluster)
    service = cluster.coordinator.checkpoints
    assert await service.verification.verify_stored(job_id, NAME) == [], (
        "the host's word alone marks nothing"
    )
    (view,) = (await service.list(job_id)).items
    assert view.state == "committed"
    (folder / "state.json").unlink()
    assert await service.verification.verify_stored(job_id, NAME) == [
        "state.json: expected a file of 2 bytes, found no such file"
    ]
    (view,) = (await service.list(job_id)).items
    assert view.state == "corrupt"
    await pause(cluster, job_id)
    with pytest.raises(WrongStateError, match="corrupt"):
        await service.restore(view.id)
    await service.delete(view.id)
    with pytest.raises(NotFoundError):
        await service.verification.verify_stored(job_id, NAME)
    with pytest.raises(NotFoundError):
        await service.verification.verify_stored(job_id, "step-00000099-a1-g1")


@on_sqlite
async def test_verify_clears_the_mark_of_restored_files(
    cluster: SimulatedCluster,
) -> None:
    job_id, folder = await stored(cluster)
    service = cluster.coordinator.checkpoints
    (view,) = (await service.list(job_id)).items
    (folder / "state.json").write_bytes(b"[]")
    assert await service.verification.verify(view.id)
    assert (await service.get(view.id)).state == "corrupt"
    await pause(cluster, job_id)
    with pytest.raises(WrongStateError, match="corrupt"):
        await service.restore(view.id)
    (folder / "state.json").write_bytes(FILES["state.json"])
    assert not await service.verification.verify(view.id)
    assert not await service.verification.verify(view.id), "recorded once"
    assert (await service.get(view.id)).state == "committed"
    events = (await cluster.coordinator.jobs.events(job_id, limit=500)).items
    reasons = [event.reason for event in events if "is intact" in event.reason]
    assert reasons == ["the checkpoint of step 10 is intact again"]
    assert await start_again(cluster, job_id) == [NAME]


@on_sqlite
async def test_storage_that_is_away_marks_nothing(cluster: SimulatedCluster) -> None:
    """Once it is back, its checkpoints are what they were."""
    job_id, folder = await stored(cluster)
    service = cluster.coordinator.checkpoints
    elsewhere = folder.parent.with_name("unmounted")
    folder.parent.rename(elsewhere)
    (problem,) = await service.verification.verify_stored(job_id, NAME)
    assert problem == "the folder: expected a folder, found nothing"
    elsewhere.rename(folder.parent)
    (view,) = (await service.list(job_id)).items
    assert view.state == "committed"
    # One folder alone that is gone is damage.
    folder.rename(folder.with_name("gone"))
    assert await service.verification.verify_stored(job_id, NAME) == [problem]
    (view,) = (await service.list(job_id)).items
    assert view.state == "corrupt"


@on_sqlite
@pytest.mark.parametrize(
    ("error", "state"),
    [(errno.EIO, "committed"), (errno.EACCES, "committed"), (errno.ENOENT, "corrupt")],
)
async def test_verify_reports_an_unreadable_file(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, error: int, state: str
) -> None:
    job_id, _ = await stored(cluster)

    def fails(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "open_within", fails)
        assert await cluster.coordinator.checkpoints.verification.verify_stored(job_id, NAME)
    (view,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert view.state == state


@pytest.mark.side_by_side
async def test_concurrent_verifications_hash_a_checkpoint_once(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = await stored(cluster)
    hashed: list[Path] = []

    def counted(folder: Path) -> list[Problem]:
        hashed.append(folder)
        return verify_folder(folder)

    monkeypatch.setattr(verification, "verify_folder", counted)
    service = cluster.coordinator.checkpoints
    (view,) = (await service.list(job_id)).items
    assert (
        await asyncio.gather(*(service.verification.verify(view.id) for _ in range(8))) == [[]] * 8
    )
    assert len(hashed) == 1
    await service.verification.verify_stored(job_id, NAME)
    assert len(hashed) == 2
