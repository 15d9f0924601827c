"""Contents of outputs: received in parts, whole or not there."""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of
from support.storage.stored import pieces

from trainhall.cluster.errors import (
    ConflictError,
    DamagedError,
    NotFoundError,
    StorageFullError,
)
from trainhall.cluster.outputs.store import MAX_RESERVE_BYTES, OutputStore
from trainhall.cluster.wire.received_file import ReceivedFile


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


async def broken(data: bytes) -> AsyncIterator[bytes]:
    yield data
    raise ConnectionResetError


@given(
    data=st.binary(min_size=1, max_size=3000),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    restarts=st.booleans(),
)
@settings(max_examples=share_of(30), deadline=None)
def test_interrupted_upload_ends_whole_wherever_it_broke(
    data: bytes, cuts: list[int], restarts: bool
) -> None:
    async def run(folder: Path) -> None:
        store = OutputStore(folder)
        for cut in cuts:
            (at,) = await store.received("job", [sha(data)])
            assert at is not None
            with pytest.raises(ConnectionResetError):
                await store.put(
                    "job", sha(data), broken(data[at : at + cut]), size=len(data), offset=at
                )
            with pytest.raises(NotFoundError):
                store.file("job", sha(data))
            if restarts:
                store = OutputStore(folder)
        (at,) = await store.received("job", [sha(data)])
        assert at is not None
        await store.put("job", sha(data), pieces(data[at:]), size=len(data), offset=at)
        assert await store.received("job", [sha(data)]) == [None]
        assert store.file("job", sha(data)).read_bytes() == data
        assert names(folder) == [sha(data)]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@given(
    contents=st.lists(st.binary(max_size=60), min_size=1, max_size=5, unique=True),
    damaged=st.sets(st.integers(0, 4)),
    written=st.integers(0, 5),
)
@settings(max_examples=share_of(30), deadline=None)
def test_contents_sent_together_are_whole_or_absent(
    contents: list[bytes], damaged: set[int], written: int
) -> None:
    sent = [
        (sha(data), data + b"?" if number in damaged else data)
        for number, data in enumerate(contents)
    ]
    whole = sorted(name for name, data in sent if sha(data) == name)
    finish, finished = ReceivedFile.finish, 0

    def full(file: ReceivedFile, *args: Any) -> None:
        nonlocal finished
        finished += 1
        if finished > written:
            file.open()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finish(file, *args)

    async def run(folder: Path) -> None:
        store = OutputStore(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReceivedFile, "finish", full)
            with contextlib.suppress(StorageFullError):
                await store.put_small("job", sent)
        assert set(names(folder)) <= set(whole)
        for _ in range(2):
            stored = await store.put_small("job", sent)
            assert [name for name, ok in zip(dict(sent), stored, strict=True) if not ok] == [
                name for name, data in sent if sha(data) != name
            ]
            assert names(folder) == whole
        for name, data in sent:
            if name in whole:
                assert store.file("job", name).read_bytes() == data

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def test_upload_continues_after_a_kill(tmp_path: Path) -> None:
    data = os.urandom(3 * 2**20)
    store = OutputStore(tmp_path)
    part = tmp_path / "outputs" / "job" / f"{sha(data)}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[: 2**20])
    assert await store.received("job", [sha(data)]) == [2**20]
    with pytest.raises(ConflictError, match="1048576"):
        await store.put("job", sha(data), pieces(data[10:]), size=len(data), offset=10)
    await store.put("job", sha(data), pieces(data[2**20 :]), size=len(data), offset=2**20)
    assert store.file("job", sha(data)).read_bytes() == data
    await store.put("job", sha(data), pieces(data), size=len(data))
    assert names(tmp_path) == [sha(data)]


@pytest.mark.parametrize("sent", [b"other", b"one and more", b"o"])
async def test_damaged_content_is_not_kept(tmp_path: Path, sent: bytes) -> None:
    store = OutputStore(tmp_path)
    with pytest.raises(DamagedError):
        await store.put("job", sha(b"one..."), pieces(sent), size=6)
    assert names(tmp_path) == []


async def test_two_senders_of_one_content_do_not_mix(tmp_path: Path) -> None:
    store, data = OutputStore(tmp_path), os.urandom(5000)
    await asyncio.gather(
        *(store.put("job", sha(data), pieces(data, 100), size=len(data)) for _ in range(3))
    )
    assert store.file("job", sha(data)).read_bytes() == data


async def test_files_leave_room_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, data = OutputStore(tmp_path), os.urandom(5000)
    total = 8 * MAX_RESERVE_BYTES
    free = MAX_RESERVE_BYTES - 1

    def usage(_: Path) -> object:
        return SimpleNamespace(total=total, free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(StorageFullError, match="hosts keep the files"):
        await store.put("job", sha(data), pieces(data), size=len(data))
    with pytest.raises(StorageFullError, match="hosts keep the files"):
        await store.put_small("job", [(sha(data), data)])
    with pytest.raises(StorageFullError, match="log the artifact again"):
        await store.put_unknown("job", pieces(data), 2**20)
    free += 1
    await store.put("job", sha(data), pieces(data), size=len(data))
    total, free = 10 * 2**20, 2 * 2**20  # a small disk
    await store.put_unknown("job", pieces(data[1:]), 2**20)


async def test_full_disk_is_said_and_keeps_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, data = OutputStore(tmp_path), b"x" * 10
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(ReceivedFile, "write", full)
        with pytest.raises(StorageFullError, match="hosts keep the files"):
            await store.put("job", sha(data), pieces(data), size=10)
    await store.put("job", sha(data), pieces(data), size=10)
    assert store.file("job", sha(data)).read_bytes() == data


async def test_sweep_removes_what_no_row_names(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    for data in (b"kept", b"nobody's"):
        await store.put("job", sha(data), pieces(data), size=len(data))
    with pytest.raises(ConnectionResetError):
        await store.put("job", sha(b"abcdef"), broken(b"abc"), size=6)
    assert await store.jobs() == ["job"]
    assert await store.sweep("job", {sha(b"kept")}, 60) == []
    assert len(await store.sweep("job", {sha(b"kept")}, -1)) == 2
    assert names(tmp_path) == [sha(b"kept")]
    await store.remove_job("job")
    await store.remove_job("job")
    assert names(tmp_path) == []


@pytest.mark.parametrize(("job", "sha256"), [("../x", "0" * 64), ("job", "../" + "0" * 61)])
async def test_paths_stay_within_the_store(tmp_path: Path, job: str, sha256: str) -> None:
    with pytest.raises(NotFoundError):
        await OutputStore(tmp_path).received(job, [sha256])
