"""Files of uploaded checkpoints: whole or not there."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.simulated import CountingIds
from support.examples import share_of
from support.storage.stored import FILES, NAME, manifest, pieces, upload, upload_and_commit

from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.errors import (
    DamagedError,
    InvalidValueError,
    NotFoundError,
    StorageFullError,
    TooLargeError,
)
from trainhall.cluster.wire.received_file import ReceivedFile


def files_below(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path, CountingIds(), max_file_bytes=10_000)


async def test_complete_upload_becomes_a_checkpoint(store: CheckpointStore, tmp_path: Path) -> None:
    await upload(store)
    assert not store.has("job", NAME)
    with pytest.raises(NotFoundError):
        store.file("job", NAME, "state.json")
    await store.commit("job", NAME)
    assert store.has("job", NAME)
    for path, data in FILES.items():
        assert store.file("job", NAME, path).read_bytes() == data
    await store.commit("job", NAME)
    await upload(store)
    await store.commit("job", NAME)
    assert files_below(tmp_path / "uploads") == []
    await store.delete("job", NAME)
    await store.delete("job", NAME)
    assert not store.has("job", NAME)
    assert files_below(tmp_path) == []


async def test_half_a_checkpoint_is_never_committed(store: CheckpointStore) -> None:
    with pytest.raises(NotFoundError):
        await store.commit("job", NAME)
    await store.put("job", NAME, "manifest.json", pieces(manifest(FILES)))
    with pytest.raises(DamagedError, match="model/rank-0"):
        await store.commit("job", NAME)
    await upload(store)
    await store.put("job", NAME, "state.json", pieces(b"[]"))
    with pytest.raises(DamagedError, match=r"state\.json"):
        await store.commit("job", NAME)
    await store.put("job", NAME, "manifest.json", pieces(b"nonsense"))
    with pytest.raises(DamagedError, match=r"manifest\.json"):
        await store.commit("job", NAME)
    await upload(store)
    await store.put("job", NAME, "manifest.json", pieces(manifest(FILES, "other")))
    with pytest.raises(DamagedError, match="other"):
        await store.commit("job", NAME)
    assert not store.has("job", NAME)
    await upload(store)
    await store.commit("job", NAME)


async def test_file_with_wrong_hash_is_not_kept(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="send it again"):
        await store.put("job", NAME, "a", pieces(b"one"), sha256="0" * 64)
    with pytest.raises(TooLargeError, match="10000"):
        await store.put("job", NAME, "a", pieces(b"x" * 10_001, 1000))

    async def breaks() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.put("job", NAME, "a", breaks())
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../x", "/etc/passwd", "a/../../x", "a//b", "a/", "./a", "a\\b", "a\0b",
     "a\nb", "x.part", "a/" * 300 + "b", "b" * 300],
)  # fmt: skip
async def test_paths_stay_within_the_checkpoint(
    store: CheckpointStore, tmp_path: Path, path: str
) -> None:
    with pytest.raises(InvalidValueError):
        await store.put("job", NAME, path, pieces(b"x"))
    with pytest.raises(InvalidValueError):
        store.file("job", NAME, path)
    assert files_below(tmp_path) == []


async def test_a_path_is_a_file_or_a_folder(store: CheckpointStore) -> None:
    await store.put("job", NAME, "a/b", pieces(b"x"))
    for path in ("a", "a/b/c"):
        with pytest.raises(InvalidValueError, match="was uploaded as a"):
            await store.put("job", NAME, path, pieces(b"x"))


@pytest.mark.parametrize(
    ("job_id", "name"),
    [("..", NAME), ("", NAME), ("a/b", NAME), ("job", ".."), ("job", "step-1"), ("job", "")],
)
async def test_jobs_and_names_are_checked_too(
    store: CheckpointStore, job_id: str, name: str
) -> None:
    with pytest.raises(InvalidValueError):
        await store.put(job_id, name, "a", pieces(b"x"))
    with pytest.raises(InvalidValueError):
        await store.commit(job_id, name)
    with pytest.raises(InvalidValueError):
        store.has(job_id, name)


@settings(max_examples=share_of(100))
@given(path=st.text(max_size=40))
def test_no_path_leads_out(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    root = tmp_path_factory.mktemp("store")
    store = CheckpointStore(root, CountingIds(), max_file_bytes=100)
    try:
        asyncio.run(store.put("job", NAME, path, pieces(b"x")))
    except (InvalidValueError, OSError):
        return
    (written,) = [p for p in root.rglob("*") if p.is_file()]
    assert written.resolve().is_relative_to(root / "uploads" / "job" / NAME)


async def test_existing_file_is_not_written_again(store: CheckpointStore, tmp_path: Path) -> None:
    """Whoever missed the answer sends all of a checkpoint again."""
    await upload(store)
    uploads = tmp_path / "uploads" / "job" / NAME
    before = {path: (uploads / path).stat().st_ino for path in FILES}
    for path in FILES:
        os.utime(uploads / path, (0, 0))
    await upload(store)
    assert {path: (uploads / path).stat().st_ino for path in FILES} == before
    assert all((uploads / path).stat().st_mtime > 0 for path in FILES), "it is still continued"
    # Of the same size, and not the same.
    (uploads / "state.json").write_bytes(b"[]")
    await upload(store)
    assert (uploads / "state.json").read_bytes() == FILES["state.json"]
    with pytest.raises(DamagedError, match="send it again"):
        await store.put("job", NAME, "state.json", pieces(b"[]"), sha256="0" * 64)
    assert (uploads / "state.json").read_bytes() == FILES["state.json"]
    await store.commit("job", NAME)


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
async def test_upload_succeeds_after_a_full_disk(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    places: dict[str, tuple[Any, str]] = {
        "write": (ReceivedFile, "write"),
        "fsync": (os, "fsync"),
        "rename": (Path, "rename"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*places[call], full)
        with pytest.raises(
            StorageFullError, match="data folder is full; nodes keep their checkpoints"
        ):
            await upload_and_commit(store)
    assert not store.has("job", NAME)
    assert not [path for path in files_below(tmp_path) if path.name.endswith(".part")]
    await upload_and_commit(store)
    assert store.has("job", NAME)


async def test_abandoned_uploads_go(store: CheckpointStore) -> None:
    await upload(store)
    assert await store.sweep(60) == []
    assert await store.sweep(-1) == [f"job/{NAME}"]


async def test_sweep_leaves_a_continued_upload(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(store)

    def renamed(path: Path) -> os.stat_result:
        raise FileNotFoundError(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", renamed)
        assert await store.sweep(-1) == []
    await store.commit("job", NAME)


async def test_long_names_of_many_bytes_are_stored(store: CheckpointStore) -> None:
    await upload(store, {"あ" * 85: b"x"})
    await store.commit("job", NAME)


async def test_many_commit_at_once(store: CheckpointStore) -> None:
    await upload(store)
    await asyncio.gather(*(store.commit("job", NAME) for _ in range(5)))
    assert store.has("job", NAME)


# Records
