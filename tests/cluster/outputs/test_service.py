"""Files of jobs on the coordinator: committed, listed, limited, fenced and deleted."""

import hashlib
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update
from support.cluster.simulated import SimulatedCluster
from support.storage.stored import pieces

from trainhall.cluster.errors import (
    InvalidCursorError,
    InvalidValueError,
    NotFoundError,
    RevokedError,
    TooLargeError,
)
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.outputs import uploads as uploads_module
from trainhall.cluster.outputs.listing import OutputFilter
from trainhall.cluster.outputs.views import OutputTotals
from trainhall.cluster.wire.outputs import Commit, Content, File, Offer, Skipped
from trainhall.db.models import Attempt, Event

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(path: str, data: bytes) -> File:
    return File(path=path, size=len(data), sha256=sha(data), modified_at=TIME)


async def running_job(cluster: SimulatedCluster, workers: int = 1, nodes: int = 1) -> str:
    for number in range(nodes):
        await cluster.add_node(f"node-{number}", workers // nodes)
    job_id = await cluster.submit(workers)
    await cluster.run_until(job_id, "running")
    return job_id


async def write(
    cluster: SimulatedCluster, job_id: str, files: dict[str, bytes], rank: int = 0, attempt: int = 1
) -> None:
    """A host uploads files and commits them."""
    uploads = cluster.coordinator.outputs.uploads
    for data in files.values():
        await uploads.receive(job_id, attempt, sha(data), pieces(data), size=len(data))
    changes = Commit(rank=rank, files=[file(path, data) for path, data in files.items()])
    reply = await uploads.commit(job_id, attempt, changes)
    assert reply.missing == []


async def contents(
    cluster: SimulatedCluster, job_id: str, rank: int | None = None
) -> dict[str, bytes]:
    service = cluster.coordinator.outputs
    listed = await service.list(job_id, rank)
    return {o.path: (await service.find(job_id, o.path, rank))[1].read_bytes() for o in listed}


async def reasons(cluster: SimulatedCluster, job_id: str, code: EventCode) -> list[str]:
    async with cluster.db.session() as session:
        found = select(Event.reason).where(Event.job_id == job_id, Event.code == code.value)
        return list(await session.scalars(found.order_by(Event.seq)))


def stored_names(cluster: SimulatedCluster, job_id: str) -> set[str]:
    folder = cluster.coordinator.outputs._store._folder / job_id
    return {path.name for path in folder.glob("*")}


async def test_committed_files_are_listed_and_found(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    await write(cluster, job_id, {"b.txt": b"two", "a/x.pt": b"one"})
    listed = await cluster.coordinator.outputs.list(job_id)
    assert [(o.path, o.size, o.attempt, o.rank) for o in listed] == [
        ("a/x.pt", 3, 1, 0),
        ("b.txt", 3, 1, 0),
    ]
    assert listed[0].modified_at == TIME
    assert await contents(cluster, job_id) == {"a/x.pt": b"one", "b.txt": b"two"}
    with pytest.raises(NotFoundError):
        await cluster.coordinator.outputs.find(job_id, "a")
    with pytest.raises(NotFoundError):
        await cluster.coordinator.outputs.list("0" * 12)


async def test_replaced_and_removed_contents_are_gone(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    await write(cluster, job_id, {"a": b"old", "same": b"old too", "other": b"old too"})
    await write(cluster, job_id, {"a": b"new"})
    await cluster.coordinator.outputs.uploads.commit(
        job_id, 1, Commit(rank=0, removed=["same", "never"])
    )
    assert await contents(cluster, job_id) == {"a": b"new", "other": b"old too"}
    assert stored_names(cluster, job_id) == {sha(b"new"), sha(b"old too")}


async def test_commit_without_its_content_names_it(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    uploads = cluster.coordinator.outputs.uploads
    changes = Commit(rank=0, files=[file("a", b"one")])
    reply = await uploads.commit(job_id, 1, changes)
    assert reply.missing == [changes.files[0].sha256]
    assert await cluster.coordinator.outputs.list(job_id) == []
    offer = Offer(contents=[Content(sha256=changes.files[0].sha256, size=3)])
    assert (await uploads.received(job_id, 1, offer)).offsets == [0]
    await write(cluster, job_id, {"a": b"one"})
    assert (await uploads.received(job_id, 1, offer)).offsets == [None]


async def test_superseded_attempt_changes_nothing(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    await write(cluster, job_id, {"a": b"one"})
    async with cluster.db.transaction() as session:
        await session.execute(update(Attempt).values(revoked=True))
    with pytest.raises(RevokedError):
        await write(cluster, job_id, {"a": b"two"})
    with pytest.raises(RevokedError):
        await cluster.coordinator.outputs.uploads.commit(job_id, 1, Commit(rank=0, removed=["a"]))
    with pytest.raises(NotFoundError):
        await write(cluster, job_id, {"a": b"two"}, attempt=2)
    for attempt, error in ((1, RevokedError), (2, NotFoundError)):
        with pytest.raises(error):
            await cluster.coordinator.outputs.uploads.stored(job_id, attempt, 0)
    assert await contents(cluster, job_id) == {"a": b"one"}


async def test_late_upload_of_an_earlier_attempt_loses(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.run_until(job_id, "paused")
    await cluster.coordinator.jobs.resume(job_id)
    await cluster.run_until(job_id, "running")
    await write(cluster, job_id, {"a": b"new"}, attempt=2)
    await write(cluster, job_id, {"a": b"late", "b": b"only there"}, attempt=1)
    await cluster.coordinator.outputs.uploads.commit(job_id, 1, Commit(rank=0, removed=["a"]))
    assert await contents(cluster, job_id) == {"a": b"new", "b": b"only there"}


async def test_lowest_rank_has_a_name_of_several_hosts(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, 4, nodes=2)
    await write(cluster, job_id, {"a": b"of 2", "only": b"2"}, rank=2)
    assert await contents(cluster, job_id) == {"a": b"of 2", "only": b"2"}
    assert await reasons(cluster, job_id, EventCode.OUTPUT_SHARED) == []
    await write(cluster, job_id, {"a": b"of 0", "only": b"2"})
    await write(cluster, job_id, {"b": b"of 0"})
    await write(cluster, job_id, {"b": b"of 2"}, rank=2)
    assert await contents(cluster, job_id) == {"a": b"of 0", "b": b"of 0", "only": b"2"}
    assert await contents(cluster, job_id, 2) == {"a": b"of 2", "b": b"of 2", "only": b"2"}
    (event,) = await reasons(cluster, job_id, EventCode.OUTPUT_SHARED)
    assert "several hosts have written a:" in event
    assert "?rank=2" in event
    uploads = cluster.coordinator.outputs.uploads
    seen = {f.path: f.rank for f in (await uploads.stored(job_id, 1, 2)).files}
    assert seen == {"a": 2, "b": 2, "only": 2}
    assert {f.path: f.rank for f in (await uploads.stored(job_id, 1, 3)).files}["a"] == 0


async def test_files_beyond_limits_are_said_and_not_lost(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    uploads = cluster.coordinator.outputs.uploads
    uploads._options = ClusterOptions(output_file_bytes=10, output_bytes_per_job=15)
    with pytest.raises(TooLargeError):
        await write(cluster, job_id, {"big": b"x" * 11})
    await write(cluster, job_id, {"a": b"x" * 9})
    together = [(Content(sha256=sha(x), size=len(x)), x) for x in (b"x" * 11, b"x" * 9)]
    together.append((Content(sha256="0" * 64, size=1), b"x"))
    for _ in range(2):
        taken = await uploads.receive_small(job_id, 1, together)
        assert taken.statuses == [413, 204, 422]
        assert stored_names(cluster, job_id) == {sha(b"x" * 9)}
    data = b"y" * 8
    skipped = Skipped(path="big", size=11, why="file_limit")
    changes = Commit(rank=0, files=[file("b", data)], skipped=[skipped])
    for _ in range(2):
        await uploads.receive(job_id, 1, sha(data), pieces(data), size=8)
        reply = await uploads.commit(job_id, 1, changes)
        assert [each.path for each in reply.refused] == ["b"]
        assert stored_names(cluster, job_id) == {sha(b"x" * 9)}
    first, second = await reasons(cluster, job_id, EventCode.OUTPUT_NOT_STORED)
    assert first.startswith("output big (11 B) was not stored: a file may have 10 B")
    assert second.startswith("output b (8 B) was not stored: the files of a job may have 15 B")
    await uploads.commit(job_id, 1, Commit(rank=0, removed=["a"], files=[]))
    await write(cluster, job_id, {"b": data})
    assert await contents(cluster, job_id) == {"b": data}


async def test_only_so_many_events_about_skipped_files(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "MAX_SKIPPED_EVENTS", 2)
    job_id = await running_job(cluster)
    skipped = [Skipped(path=f"f{n}", size=1, why="unreadable") for n in range(9)]
    for _ in range(2):
        await cluster.coordinator.outputs.uploads.commit(job_id, 1, Commit(rank=0, skipped=skipped))
    events = await reasons(cluster, job_id, EventCode.OUTPUT_NOT_STORED)
    assert events[2:] == ["more than 2 output files were not stored"]


async def test_names_that_lead_outside_are_refused(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    for name in ("../a", "/a", "a\nb"):
        with pytest.raises(InvalidValueError, match="path"):
            await cluster.coordinator.outputs.uploads.commit(
                job_id, 1, Commit(rank=0, files=[file(name, b"")])
            )


async def test_outputs_go_with_the_record_of_their_job(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster)
    await write(cluster, job_id, {"a": b"one"})
    await cluster.finish(job_id)
    await cluster.run_until(job_id, "completed")
    await cluster.coordinator.housekeep()
    assert await contents(cluster, job_id) == {"a": b"one"}
    await cluster.coordinator.jobs.delete(job_id)
    await cluster.coordinator.housekeep()
    assert stored_names(cluster, job_id) == set()
    with pytest.raises(NotFoundError):
        await cluster.coordinator.outputs.list(job_id)


async def read_folder(
    cluster: SimulatedCluster, job_id: str, wanted: OutputFilter, limit: int
) -> list[str]:
    """Read all pages of a folder: its folders with their totals, and its files."""
    found, cursor = [], None
    while True:
        page = await cluster.coordinator.outputs.page(
            job_id, wanted, is_nested=False, limit=limit, cursor=cursor
        )
        assert len(page.folders) + len(page.items) <= limit
        found += [f"{folder.path} {folder.files} {folder.size}" for folder in page.folders]
        found += [file.path for file in page.items]
        if (cursor := page.next_cursor) is None:
            return found


async def test_folder_shows_its_folders_before_its_files(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, 4, nodes=2)
    files = {"a": b"1", "a_b/x": b"22", "aXb/x": b"333", "b/c/d": b"4", "b/e": b"55", "b/F": b"66"}
    await write(cluster, job_id, files)
    await write(cluster, job_id, {"a": b"of 2", "b/e": b"of 2", "b/own": b"of 2"}, rank=2)
    for limit in (1, 2, 100):
        root = await read_folder(cluster, job_id, OutputFilter(), limit)
        assert sorted(root[:3]) == ["aXb/ 1 3", "a_b/ 1 2", "b/ 4 9"]
        assert root[3:] == ["a"]
        inner = await read_folder(cluster, job_id, OutputFilter(folder="b"), limit)
        assert inner[0] == "b/c/ 1 1"
        assert sorted(inner[1:]) == ["b/F", "b/e", "b/own"]
    assert await read_folder(cluster, job_id, OutputFilter(folder="a_b/"), 10) == ["a_b/x"]
    assert await read_folder(cluster, job_id, OutputFilter(rank=2), 10) == ["b/ 2 8", "a"]
    assert await read_folder(cluster, job_id, OutputFilter(folder="absent\0"), 10) == []


async def test_files_are_found_by_words_in_any_order(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, 4, nodes=2)
    await write(cluster, job_id, {"runs/best/Model.pt": b"12", "runs/100%.csv": b"345"})
    await write(cluster, job_id, {"runs/best/model.pt": b"6"}, rank=2)
    service = cluster.coordinator.outputs
    for find, found in (
        ("model RUNS", ["runs/best/Model.pt", "runs/best/model.pt"]),
        ("model csv", []),
        ("0%.", ["runs/100%.csv"]),
        ("s_1", []),
        ("  ", ["runs/100%.csv", "runs/best/Model.pt", "runs/best/model.pt"]),
    ):
        page = await service.page(job_id, OutputFilter(find=find))
        assert sorted(each.path for each in page.items) == found, find
        assert page.totals is not None
        assert page.totals.files == len(found)
    assert await read_folder(cluster, job_id, OutputFilter(find="best"), 9) == ["runs/ 2 3"]


async def test_first_page_has_totals_and_hosts(cluster: SimulatedCluster) -> None:
    job_id = await running_job(cluster, 4, nodes=2)
    service = cluster.coordinator.outputs
    empty = await service.page(job_id)
    assert empty.totals == OutputTotals(files=0, size=0, ranks=[])
    await write(cluster, job_id, {"a": b"1", "b": b"22"})
    await write(cluster, job_id, {"b": b"of 2"}, rank=2)
    page = await service.page(job_id, limit=1)
    assert page.totals == OutputTotals(files=2, size=3, ranks=[0, 2])
    assert (await service.page(job_id, limit=1, cursor=page.next_cursor)).totals is None
    other = await service.page(job_id, OutputFilter(rank=2))
    assert other.totals == OutputTotals(files=1, size=4, ranks=[0, 2])
    with pytest.raises(InvalidCursorError):
        await service.page(job_id, is_nested=False, cursor=page.next_cursor)
