"""Checkpoints over the wire: verified on arrival, told of when complete, removed with care."""

import asyncio
import hashlib
import os
import shutil
import socket
from pathlib import Path

import httpx
import pytest
from fastapi import Request, Response
from support.cluster.fake_coordinator import CREDENTIAL, FakeCoordinator
from support.forking.run_as import needs_root

from trainhall.cluster.agent.coordinator_link import http_api as api_module
from trainhall.cluster.agent.coordinator_link.http_api import (
    CoordinatorApi,
    RefusedError,
    Source,
    UnavailableError,
)
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.agent.shipping import checkpoint_transfer
from trainhall.training.checkpoint.format.manifest import FileRecord, Manifest, encode_manifest
from trainhall.training.checkpoint.format.names import MANIFEST, parse_name

NAME = "step-00000120-a1-g1"


def write_checkpoint(
    folder: Path, files: dict[str, bytes], name: str = NAME, job_id: str = "job"
) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    listed = []
    for file, data in files.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        listed.append(FileRecord(path=file, size=len(data), sha256=digest))
    parsed = parse_name(name)
    assert parsed is not None
    manifest = Manifest(
        job_id=job_id,
        attempt=parsed.attempt,
        generation=parsed.generation,
        step=parsed.step,
        created_at="2026-01-01T00:00:00Z",
        world_size=1,
        files=listed,
    )
    (path / "manifest.json").write_bytes(encode_manifest(manifest))
    return path


class Store:
    """A coordinator's store."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.steps: list[str] = []
        self.away = 0
        self.problems: list[str] = []
        """What it finds when it verifies one that it has."""
        self.verified: list[str] = []

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise UnavailableError("away")

    async def put_file(
        self, job_id: str, name: str, path: str, file: Path, sha256: str, owner: object = None
    ) -> None:
        self._answer()
        data = file.read_bytes()  # noqa: ASYNC240 - a test's own store may wait for the disk
        if hashlib.sha256(data).hexdigest() != sha256:
            raise RefusedError(422, f"{path}: the bytes are not what was promised")
        self.files[(name, path)] = data
        self.steps.append(path)

    async def commit(self, job_id: str, name: str) -> None:
        if (name, "manifest.json") not in self.files:
            raise RefusedError(404, f"there is no upload {name}")
        self.steps.append("commit")

    async def verify(self, job_id: str, name: str) -> list[str]:
        self._answer()
        self.verified.append(name)
        if (name, MANIFEST) not in self.files:
            return ["the folder: expected a folder, found nothing"]
        return self.problems

    async def get_file(self, job_id: str, name: str, path: str, to: Path) -> tuple[int, str]:
        self._answer()
        if (name, path) not in self.files:
            raise RefusedError(404, f"there is no file {path!r}")
        data = self.files[(name, path)]
        to.write_bytes(data)  # noqa: ASYNC240
        return len(data), hashlib.sha256(data).hexdigest()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FILES = {"rank-0.safetensors": b"weights" * 1000, "state/extra.json": b"{}"}


async def test_checkpoint_transfer_round_trip(tmp_path: Path) -> None:
    store = Store()
    path = write_checkpoint(tmp_path / "here", FILES)
    assert await checkpoint_transfer.upload(store, path.parent, "job", {"name": NAME}) is None
    # The manifest makes a checkpoint of the files, so it goes last.
    assert store.steps == ["rank-0.safetensors", "state/extra.json", "manifest.json", "commit"]
    there = tmp_path / "there"
    there.mkdir()
    assert (await checkpoint_transfer.fetch(store, there, "job", [NAME])).names == [NAME]
    for file in (*FILES, "manifest.json"):
        assert (there / NAME / file).read_bytes() == (path / file).read_bytes()
    assert [p.name for p in there.iterdir()] == [NAME]


class WaitingStore(Store):
    """Takes no file before several are on their way."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._missing = together
        self._all_there = asyncio.Event()

    async def put_file(
        self, job_id: str, name: str, path: str, file: Path, sha256: str, owner: object = None
    ) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._all_there.set()
        await self._all_there.wait()
        await super().put_file(job_id, name, path, file, sha256)


async def test_upload_sends_files_together_and_manifest_last(
    tmp_path: Path,
) -> None:
    files = {f"shard-{i}.safetensors": bytes([i]) * 10 for i in range(6)}
    write_checkpoint(tmp_path, files)
    store = WaitingStore(checkpoint_transfer.FILES_AT_ONCE)
    assert await checkpoint_transfer.upload(store, tmp_path, "job", {"name": NAME}) is None
    assert sorted(store.steps[:6]) == sorted(files)
    assert store.steps[6:] == ["manifest.json", "commit"]


async def test_interrupted_upload_leaves_no_request_open(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {f"shard-{i}.safetensors": bytes([i]) for i in range(6)})
    store = WaitingStore(2)
    store.away = 1
    before = asyncio.all_tasks()
    with pytest.raises(UnavailableError):
        await checkpoint_transfer.upload(store, tmp_path, "job", {"name": NAME})
    assert asyncio.all_tasks() == before
    assert await checkpoint_transfer.upload(store, tmp_path, "job", {"name": NAME}) is None


class SlowDisk(FakeCoordinator):
    """What was sent is on its disk only when a test says so; other requests it never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.received, self.written = asyncio.Event(), asyncio.Event()

    async def _put(self, request: Request, job: str, name: str, path: str, sha256: str) -> Response:
        await self._wait_for_the_disk(request)
        return await super()._put(request, job, name, path, sha256)

    async def _commit(self, request: Request, job: str, name: str) -> Response:
        await self._wait_for_the_disk(request)
        return await super()._commit(request, job, name)

    async def _logs(
        self, request: Request, job: str, attempt: int, rank: int, stream: str, offset: int
    ) -> Response:
        await self.written.wait()
        return Response(status_code=503)

    async def _wait_for_the_disk(self, request: Request) -> None:
        await request.body()
        self.received.set()
        await self.written.wait()


@pytest.mark.parametrize("what", ["put", "commit"])
async def test_upload_waits_for_a_slow_coordinator_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Who gave up would send everything again, for ever."""
    monkeypatch.setattr(api_module, "TIMEOUT", httpx.Timeout(0.2, connect=5.0))
    file = tmp_path / "rank-0.safetensors"
    file.write_bytes(b"weights")
    coordinator = SlowDisk()
    async with coordinator.serving():
        api = CoordinatorApi(AgentOptions(coordinator=coordinator.url, data_dir=tmp_path))
        api.credential = CREDENTIAL
        if what == "put":
            digest = hashlib.sha256(b"weights").hexdigest()
            sent = asyncio.ensure_future(api.put_file("job", NAME, file.name, file, digest))
        else:
            sent = asyncio.ensure_future(api.commit("job", NAME))
        await coordinator.received.wait()
        with pytest.raises(UnavailableError, match="ReadTimeout"):
            await api.send_logs(Source("job", 1, 0, "0-a", 1), "stdout", 0, b"later than that")
        assert not sent.done()
        coordinator.written.set()
        await sent
        await api.close()
    assert coordinator.steps == [f"put {NAME}/{file.name}" if what == "put" else f"commit {NAME}"]


async def test_upload_notices_a_dead_host(
    tmp_path: Path,
) -> None:
    async with (coordinator := FakeCoordinator()).serving():
        api = CoordinatorApi(AgentOptions(coordinator=coordinator.url, data_dir=tmp_path))
        answer = await api._http.get(f"{coordinator.url}/nothing")
        stream = answer.extensions["network_stream"]
        wire: socket.socket = stream.get_extra_info("socket")
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, pause, count = (wire.getsockopt(socket.IPPROTO_TCP, o) for o in options)
            assert idle + pause * count <= 30
        await api.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "manifest"])
async def test_fetch_skips_a_damaged_checkpoint(tmp_path: Path, damage: str) -> None:
    store = Store()
    older = "step-00000100-a1-g1"
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    for name in (NAME, older):
        write_checkpoint(here, FILES, name)
        await checkpoint_transfer.upload(store, here, "job", {"name": name})
    match damage:
        case "flip":
            store.files[(NAME, "rank-0.safetensors")] = b"Weights" + b"weights" * 999
        case "cut":
            store.files[(NAME, "rank-0.safetensors")] = b"weights"
        case "manifest":
            manifest = store.files[(NAME, "manifest.json")]
            store.files[(NAME, "manifest.json")] = manifest.replace(b"7000", b"7001")
    assert (await checkpoint_transfer.fetch(store, there, "job", [NAME, older])).names == [older]
    assert [p.name for p in there.iterdir()] == [older]


async def test_none_that_can_be_had_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(checkpoint_transfer.CheckpointUnavailableError, match="found nothing"):
        await checkpoint_transfer.fetch(Store(), tmp_path, "job", [NAME])
    with pytest.raises(
        checkpoint_transfer.CheckpointUnavailableError, match="not a checkpoint's name"
    ):
        await checkpoint_transfer.fetch(Store(), tmp_path, "job", ["../../etc"])


async def test_fetch_asks_store_to_verify_damaged_checkpoint(
    tmp_path: Path,
) -> None:
    store, here, there = Store(), tmp_path / "here", tmp_path / "there"
    there.mkdir()
    write_checkpoint(here, FILES)
    await checkpoint_transfer.upload(store, here, "job", {"name": NAME})
    store.files[(NAME, "rank-0.safetensors")] = b"rotten"
    # Whole there: it was damaged on its way, or by this host.
    with pytest.raises(
        checkpoint_transfer.CheckpointUnavailableError, match="could be fetched"
    ) as found:
        await checkpoint_transfer.fetch(store, there, "job", [NAME])
    assert not found.value.is_damaged
    assert "rank-0.safetensors: expected 7000 bytes" in str(found.value)
    store.problems, store.away = ["rank-0.safetensors: expected 7000 bytes, found 6"], 1
    with pytest.raises(checkpoint_transfer.CheckpointUnavailableError) as found:
        await checkpoint_transfer.fetch(store, there, "job", [NAME])
    assert found.value.is_damaged
    # Ranks that join others have their state from them.
    joins = await checkpoint_transfer.fetch(store, there, "job", [NAME], needed=False)
    assert joins.names == []
    assert joins.lacking[NAME].startswith("damaged in the coordinator's store: ")
    assert str(found.value) == (
        f"no checkpoint to start from is intact: {NAME}: damaged in the coordinator's store: "
        "rank-0.safetensors: expected 7000 bytes, found 6"
    )
    assert store.verified == [NAME, NAME, NAME]


async def test_fetch_works_without_verification_by_the_store(
    tmp_path: Path,
) -> None:
    async with (coordinator := FakeCoordinator()).serving():
        api = CoordinatorApi(AgentOptions(coordinator=coordinator.url, data_dir=tmp_path))
        api.credential = CREDENTIAL
        with pytest.raises(checkpoint_transfer.CheckpointUnavailableError) as found:
            await checkpoint_transfer.fetch(api, tmp_path, "job", [NAME])
        assert not found.value.is_damaged
        await api.close()


async def test_absent_coordinator_is_waited_for(tmp_path: Path) -> None:
    store = Store()
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    write_checkpoint(here, FILES)
    await checkpoint_transfer.upload(store, here, "job", {"name": NAME})
    store.away = 2
    assert (await checkpoint_transfer.fetch(store, there, "job", [NAME])).names == [NAME]
    store.away = 1
    with pytest.raises(UnavailableError):
        await checkpoint_transfer.upload(store, here, "job", {"name": NAME})


async def test_local_checkpoint_is_not_fetched_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, FILES)
    assert (
        await checkpoint_transfer.fetch(Store(), tmp_path, "job", [NAME, "step-00000100-a1-g1"])
    ).names == [NAME]


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "manifest", "bare"])
async def test_fetch_replaces_a_damaged_local_copy(tmp_path: Path, damage: str) -> None:
    store = Store()
    path = write_checkpoint(tmp_path, FILES)
    await checkpoint_transfer.upload(store, tmp_path, "job", {"name": NAME})
    tensors = path / "rank-0.safetensors"
    match damage:
        case "flip":
            tensors.write_bytes(b"Weights" + b"weights" * 999)
        case "cut":
            tensors.write_bytes(b"weights")
        case "missing":
            tensors.unlink()
        case "manifest":
            (path / "manifest.json").write_bytes(b"{}")
        case "bare":
            (path / "manifest.json").unlink()
    assert (await checkpoint_transfer.fetch(store, tmp_path, "job", [NAME])).names == [NAME]
    for file, data in FILES.items():
        assert (path / file).read_bytes() == data
    assert names_in(tmp_path) == [NAME]


async def test_fetch_skips_a_damaged_unfetchable_copy(tmp_path: Path) -> None:
    older = "step-00000100-a1-g1"
    path = write_checkpoint(tmp_path, FILES)
    write_checkpoint(tmp_path, FILES, older)
    (path / "rank-0.safetensors").write_bytes(b"rotten")
    assert (await checkpoint_transfer.fetch(Store(), tmp_path, "job", [NAME, older])).names == [
        older
    ]


async def test_hosts_agree_when_one_has_good_copy(
    tmp_path: Path,
) -> None:
    store, older = Store(), "step-00000100-a1-g1"
    origin, lucky, other = tmp_path / "origin", tmp_path / "lucky", tmp_path / "other"
    for name in (older, NAME):
        write_checkpoint(origin, FILES, name)
        await checkpoint_transfer.upload(store, origin, "job", {"name": name})
    store.files[(NAME, "rank-0.safetensors")] = b"rotten"
    write_checkpoint(lucky, FILES)
    other.mkdir()
    mine = await checkpoint_transfer.fetch(store, lucky, "job", [NAME, older], other_hosts=True)
    assert (mine.names, mine.lacking) == ([NAME, older], {})
    theirs = await checkpoint_transfer.fetch(store, other, "job", [NAME, older], other_hosts=True)
    assert theirs.names == [older]
    assert list(theirs.lacking) == [NAME]
    assert "rank-0.safetensors: expected" in theirs.lacking[NAME]
    # By itself it takes what it has.
    shutil.rmtree(lucky / older)
    assert (await checkpoint_transfer.fetch(store, lucky, "job", [NAME, older])).names == [NAME]


async def test_transfer_ignores_checkpoints_of_other_jobs(tmp_path: Path) -> None:
    store = Store()
    write_checkpoint(tmp_path, FILES, job_id="other")
    message = await checkpoint_transfer.upload(store, tmp_path, "job", {"name": NAME})
    assert message is not None
    assert "the manifest of job job" in message
    await checkpoint_transfer.upload(store, tmp_path, "other", {"name": NAME})
    with pytest.raises(
        checkpoint_transfer.CheckpointUnavailableError, match="the manifest of job job"
    ):
        await checkpoint_transfer.fetch(store, tmp_path, "job", [NAME])


async def test_uploaded_copies_are_limited_on_disk(tmp_path: Path) -> None:
    store = Store()
    names = [f"step-{step:08d}-a1-g1" for step in (10, 20, 30, 40)]
    for name in names:
        write_checkpoint(tmp_path, FILES, name)
    for name in names[:3]:
        assert await checkpoint_transfer.upload(store, tmp_path, "job", {"name": name}) is None
    # The newest is not uploaded yet, so it does not count.
    assert names_in(tmp_path) == names[1:]
    # A coordinator that asks for everything again has what is here no more.
    assert await checkpoint_transfer.upload(store, tmp_path, "job", {"name": names[0]}) is None
    assert names_in(tmp_path) == names[1:]


async def test_failed_upload_is_reported(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, FILES)
    (path / "rank-0.safetensors").write_bytes(b"rotten")
    message = await checkpoint_transfer.upload(Store(), tmp_path, "job", {"name": NAME})
    assert message is not None
    assert "not what was promised" in message
    shutil.rmtree(path)
    message = await checkpoint_transfer.upload(Store(), tmp_path, "job", {"name": NAME})
    assert message is not None
    assert "no upload" in message


def test_only_checkpoints_are_removed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, FILES)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "manifest.json").touch()
    bare = tmp_path / "step-00000121-a1-g1"
    bare.mkdir()
    link = tmp_path / "step-00000122-a1-g1"
    link.symlink_to(path)
    assert not checkpoint_transfer.remove_released(precious)
    assert not checkpoint_transfer.remove_released(bare)
    assert not checkpoint_transfer.remove_released(link)
    assert not checkpoint_transfer.remove_released(Path(NAME))
    assert checkpoint_transfer.remove_released(path)
    assert checkpoint_transfer.remove_released(path), "what is gone already is gone"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "precious", "step-00000121-a1-g1", "step-00000122-a1-g1",
    ]  # fmt: skip


@needs_root
def test_removal_follows_no_link_of_another_user(tmp_path: Path) -> None:
    """A job puts a link to another job's folder where its own was."""
    path = write_checkpoint(tmp_path / "victim", FILES)
    link = tmp_path / "hostile"
    link.symlink_to(path.parent)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    assert not checkpoint_transfer.remove_released(link / NAME, guarded=True)
    assert path.is_dir()
    relative = tmp_path / "relative"
    relative.symlink_to("victim/../victim")
    assert checkpoint_transfer.remove_released(relative / NAME, guarded=True)
    assert checkpoint_transfer.remove_released(path, guarded=True), "gone already"
    assert not list(path.parent.iterdir())


def test_host_without_the_storage_does_not_report_a_removal(tmp_path: Path) -> None:
    storage = tmp_path / "shared"
    path = storage / "a-job" / NAME
    assert not checkpoint_transfer.remove_released(path)
    storage.mkdir()
    assert checkpoint_transfer.remove_released(path), "a user removed the job's folder"


def test_removal_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, FILES)
    path.rename(tmp_path / f".removed-{NAME}")
    assert checkpoint_transfer.remove_released(path)
    assert list(tmp_path.iterdir()) == []
