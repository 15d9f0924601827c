"""What a job's retention keeps, and what is read of the checkpoints that are kept."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession
from support.cluster.simulated import SimulatedCluster
from support.storage.checkpoint_writer import write

from trainhall.api.downloads.files import OpenFileResponse
from trainhall.cluster.checkpoints import retention, rows
from trainhall.cluster.errors import NotFoundError, WrongStateError
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.db.models import Checkpoint, JobProgress
from trainhall.training.checkpoint.format.names import MANIFEST

NAME = "step-00000010-a1-g1"


async def running_job(cluster: SimulatedCluster, **checkpoint: object) -> str:
    await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(checkpoint=checkpoint)
    await cluster.run_until(job_id, "running")
    return job_id


async def states(cluster: SimulatedCluster, job_id: str) -> dict[int, str]:
    page = await cluster.coordinator.checkpoints.list(job_id)
    return {view.step: view.state for view in page.items}


async def reported(
    cluster: SimulatedCluster, job_id: str, *, dry_run: bool
) -> dict[int, tuple[bool, str]]:
    found = await cluster.coordinator.checkpoints.collect(job_id, dry_run=dry_run)
    return {each.checkpoint.step: (each.keep, each.reason) for each in found}


async def test_the_best_are_kept_beside_the_newest(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=1, keep_best=1, metric="eval_loss")
    for step, loss in ((10, 0.5), (20, 0.1), (30, 0.3), (40, 0.4)):
        await cluster.save_checkpoint(job_id, step, eval_loss=loss)
    assert await states(cluster, job_id) == {
        40: "committed", 30: "deleting", 20: "committed", 10: "deleting",
    }  # fmt: skip
    events = (await cluster.coordinator.jobs.events(job_id, limit=500)).items
    reasons = [e.reason for e in events if e.kind == "checkpoint" and "by retention" in e.reason]
    assert reasons == [
        f"the checkpoint of step {step} was deleted by retention: not the newest, nor the best by "
        "eval_loss"
        for step in (10, 30)
    ]


async def test_collect_deletes_unpinned_checkpoints(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=1)
    service = cluster.coordinator.checkpoints
    await cluster.save_checkpoint(job_id, 10)
    (first,) = (await service.list(job_id)).items
    await service.set_pinned(first.id, True)
    await cluster.save_checkpoint(job_id, 20)
    assert await reported(cluster, job_id, dry_run=True) == {
        20: (True, "the newest"),
        10: (True, "pinned"),
    }
    await service.set_pinned(first.id, False)
    expected = {20: (True, "the newest"), 10: (False, "not the newest")}
    assert await reported(cluster, job_id, dry_run=True) == expected
    assert await states(cluster, job_id) == {20: "committed", 10: "committed"}, (
        "a dry run deletes nothing"
    )
    assert await reported(cluster, job_id, dry_run=False) == expected
    assert await states(cluster, job_id) == {20: "committed", 10: "deleting"}
    assert await reported(cluster, job_id, dry_run=False) == {20: (True, "the newest")}
    with pytest.raises(NotFoundError):
        await service.collect("nothing", dry_run=True)


async def test_retention_keeps_corrupt_and_restored_checkpoints(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, keep_latest=3)
    for step in (10, 20, 30):
        await cluster.save_checkpoint(job_id, step)
    service = cluster.coordinator.checkpoints
    views = {v.step: v for v in (await service.list(job_id)).items}
    await service.verification.mark(views[20].id, "state.json: expected 2 bytes, found 1")
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.run_until(job_id, "cancelled")
    (node,) = cluster.nodes.values()
    await cluster.disconnect(node)
    await service.restore(views[10].id)
    assert await reported(cluster, job_id, dry_run=False) == {
        30: (True, "one of the 3 newest"),
        20: (True, "corrupt; kept for inspection until you delete it"),
        10: (True, "the job is about to start from it"),
    }


async def test_retention_keeps_restored_checkpoint_until_newer_save(
    cluster: SimulatedCluster,
) -> None:
    job_id = await running_job(cluster, keep_latest=1)
    service = cluster.coordinator.checkpoints
    await cluster.save_checkpoint(job_id, 10)
    (first,) = (await service.list(job_id)).items
    await service.set_pinned(first.id, True)
    await cluster.save_checkpoint(job_id, 20)
    await cluster.finish(job_id)
    await service.restore(first.id)
    await cluster.settle()
    await cluster.work()
    assert (await cluster.job(job_id)).state == "starting"
    # Its hosts may be fetching it at this moment.
    await service.set_pinned(first.id, False)
    assert await reported(cluster, job_id, dry_run=False) == {
        20: (True, "the newest"),
        10: (True, "the job resumes from it"),
    }
    with pytest.raises(WrongStateError, match="about to start"):
        await service.delete(first.id)
    await cluster.run_until(job_id, "running")
    await cluster.save_checkpoint(job_id, 15)
    assert await states(cluster, job_id) == {20: "deleting", 15: "committed", 10: "deleting"}


@pytest.mark.parametrize(
    ("command", "more"), [("set_pinned", [True]), ("delete", []), ("restore", [])]
)
async def test_collect_uses_state_after_waiting_for_job(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, command: str, more: list[bool]
) -> None:
    job_id = await running_job(cluster)
    await cluster.save_checkpoint(job_id, 10)
    await cluster.coordinator.jobs.cancel(job_id)
    await cluster.run_until(job_id, "cancelled")
    service = cluster.coordinator.checkpoints
    (view,) = (await service.list(job_id)).items

    async def last(session: AsyncSession, job: str) -> JobProgress | None:
        # As if another one had held the lock until now: retention, or a user who pins it.
        change = {"pinned": True} if command == "delete" else {"state": "deleting"}
        await session.execute(
            update(Checkpoint).values(**change), execution_options={"synchronize_session": False}
        )
        return await lock_job(session, job)

    monkeypatch.setattr(rows, "lock_job", last)
    with pytest.raises(WrongStateError, match="pinned" if command == "delete" else "deleting"):
        await getattr(service, command)(view.id, *more)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


def written(folder: Path, job_id: str) -> dict[str, bytes]:
    """The files of a checkpoint of step 10, which is written to the folder."""
    write(folder, 1, 10, job_id=job_id)
    return {file.name: file.read_bytes() for file in (folder / NAME).iterdir()}


async def stored(cluster: SimulatedCluster, source: Path) -> str:
    """The id of a checkpoint that an agent uploaded."""
    job_id = await running_job(cluster, path=None)
    service = cluster.coordinator.checkpoints
    for path, data in written(source, job_id).items():
        await service.uploads.receive(job_id, NAME, path, pieces(data))
    await service.uploads.commit(job_id, NAME)
    await cluster.report_event(job_id, "checkpoint", {"name": NAME, "step": 10, "size": 5})
    (view,) = (await service.list(job_id)).items
    return view.id


async def shared(cluster: SimulatedCluster, source: Path) -> str:
    """The id of a checkpoint on storage that the coordinator sees as well."""
    job_id = await running_job(cluster, path=str(source))
    written(source / job_id, job_id)
    await cluster.save_checkpoint(job_id, 10)
    (view,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    return view.id


@pytest.mark.parametrize("place", [stored, shared])
async def test_the_files_of_a_checkpoint_are_read(
    cluster: SimulatedCluster,
    tmp_path: Path,
    place: Callable[[SimulatedCluster, Path], Awaitable[str]],
) -> None:
    files_of = cluster.coordinator.checkpoints.files
    checkpoint = await place(cluster, tmp_path / "storage")
    files = await files_of.list(checkpoint)
    assert [file.path for file in files] == [
        "tensors-0.safetensors", "tensors-1.safetensors", MANIFEST,
    ]  # fmt: skip
    for file in files:
        with await files_of.open(checkpoint, file.path) as opened:
            data = opened.read()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)
    folder = await files_of.folder(checkpoint)
    (folder / "planted").write_bytes(b"secret")
    (tmp_path / "secret").write_bytes(b"secret")
    for path in ("planted", "../secret", "/etc/passwd", "", ".", "a/../manifest.json", "x" * 5000):
        with pytest.raises(NotFoundError):
            await files_of.open(checkpoint, path)
    (folder / "tensors-0.safetensors").unlink()
    (folder / "tensors-0.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(NotFoundError):
        await files_of.open(checkpoint, "tensors-0.safetensors")
    (folder / MANIFEST).write_bytes(b"{}")
    with pytest.raises(WrongStateError, match="damaged"):
        await files_of.list(checkpoint)


async def test_a_checked_file_is_sent_though_its_path_changes(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """A job may put a link to another file into a folder on shared storage at any time."""
    files_of = cluster.coordinator.checkpoints.files
    checkpoint = await shared(cluster, tmp_path / "storage")
    folder = await files_of.folder(checkpoint)
    (tmp_path / "secret").write_bytes(b"of the coordinator")
    content = (folder / MANIFEST).read_bytes()
    for headers, status, sent in (({}, 200, content), ({"Range": "bytes=2-7"}, 206, content[2:8])):
        opened = await files_of.open(checkpoint, MANIFEST)
        (folder / MANIFEST).unlink()
        (folder / MANIFEST).symlink_to(tmp_path / "secret")
        transport = httpx.ASGITransport(app=OpenFileResponse(opened))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            reply = await client.get("/", headers=headers)
        assert (reply.status_code, reply.content) == (status, sent)
        assert opened.closed
        (folder / MANIFEST).unlink()
        (folder / MANIFEST).write_bytes(content)


@pytest.mark.parametrize("name", ["elsewhere", "x" * 300], ids=["absent", "refused by the system"])
async def test_invisible_checkpoint_files_are_not_read(
    cluster: SimulatedCluster, tmp_path: Path, name: str
) -> None:
    job_id = await running_job(cluster, path=str(tmp_path / name))
    await cluster.save_checkpoint(job_id, 10)
    (view,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    with pytest.raises(WrongStateError, match="does not see"):
        await cluster.coordinator.checkpoints.files.list(view.id)
    await cluster.coordinator.checkpoints.delete(view.id)
    with pytest.raises(WrongStateError, match="deleting"):
        await cluster.coordinator.checkpoints.files.open(view.id, MANIFEST)


async def test_only_a_node_that_was_asked_has_removed_files(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    (holder,) = cluster.nodes.values()
    stranger = await cluster.add_node("stranger")
    await cluster.save_checkpoint(job_id, 10)
    service, db = cluster.coordinator.checkpoints, cluster.coordinator.db
    (view,) = (await service.list(job_id)).items
    await service.delete(view.id)
    for node, state in ((stranger, "deleting"), (holder, "deleted")):
        async with db.transaction() as session:
            await retention.removed(session, node.node_id, [view.location])
        assert (await service.get(view.id)).state == state
