"""Code on a host: fetched once, verified, copied for every attempt, bounded."""

import asyncio
import hashlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, UnavailableError
from trainhall.cluster.agent.launch import code_cache
from trainhall.cluster.agent.launch.code_cache import CodeCache, CodeUnavailableError
from trainhall.cluster.wire.code_archive import Item, pack

COPYTREE = shutil.copytree


class Coordinator:
    """Gives out archives; the first answers may be something else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives: dict[str, bytes] = {}
        self.instead: list[Exception | bytes] = []
        self.fetched = 0

    def keep(self, text: str) -> str:
        source = self.folder / f"source-{len(self.archives)}"
        source.mkdir(parents=True)
        (source / "train.py").write_text(text)
        with (source / "a.tar").open("w+b") as file:
            sha256 = pack([Item("train.py", source / "train.py", len(text))], file)
            file.seek(0)
            self.archives[sha256] = file.read()
        return sha256

    async def get_code(self, sha256: str, to: Path) -> tuple[int, str]:
        self.fetched += 1
        data = self.instead.pop(0) if self.instead else self.archives.get(sha256)
        if isinstance(data, Exception):
            raise data
        if data is None:
            raise RefusedError(404, "there is no code")
        await asyncio.to_thread(to.write_bytes, data)
        return len(data), hashlib.sha256(data).hexdigest()


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    return Coordinator(tmp_path / "coordinator")


@pytest.fixture
def cache(tmp_path: Path, coordinator: Coordinator) -> CodeCache:
    return CodeCache(tmp_path / "code", coordinator)


async def test_code_cache_copies_code_fetched_once(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path
) -> None:
    sha256 = coordinator.keep("print(1)")
    await asyncio.gather(*(cache.copy(sha256, tmp_path / name) for name in "abc"))
    assert coordinator.fetched == 1
    (tmp_path / "a" / "train.py").write_text("changed")
    (tmp_path / "a" / "more").touch()
    await cache.copy(sha256, tmp_path / "d")
    for name in "bcd":
        assert [p.name for p in (tmp_path / name).iterdir()] == ["train.py"]
        assert (tmp_path / name / "train.py").read_text() == "print(1)"
    assert [p.name for p in (tmp_path / "code").iterdir()] == [sha256]


async def test_fetch_is_tried_again(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path
) -> None:
    sha256 = coordinator.keep("print(1)")
    coordinator.instead = [UnavailableError("restarting"), b"torn"]
    await cache.copy(sha256, tmp_path / "a")
    assert coordinator.fetched == 3


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (
            [RefusedError(404, "there is no code 'x'")],
            "refused it: there is no code",
        ),
        ([b"torn"] * code_cache.TRIES, "the download has SHA-256"),
    ],
)
async def test_code_cache_reports_unavailable_code(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path,
    instead: list[Exception | bytes], why: str,
) -> None:  # fmt: skip
    sha256 = coordinator.keep("print(1)")
    coordinator.instead = instead
    with pytest.raises(CodeUnavailableError, match=why):
        await cache.copy(sha256, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert list((tmp_path / "code").iterdir()) == []


async def test_hostile_archive_stays_outside(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path
) -> None:
    hostile = hashlib.sha256(b"junk").hexdigest()
    coordinator.archives[hostile] = b"junk"
    with pytest.raises(CodeUnavailableError, match="the archive cannot be used"):
        await cache.copy(hostile, tmp_path / "a")
    assert list((tmp_path / "code").iterdir()) == []


async def test_least_lately_used_goes(coordinator: Coordinator, tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "code", coordinator, limit=2500)
    kept = [coordinator.keep(letter * 1000) for letter in "abc"]
    for number, sha256 in enumerate(kept):
        await cache.copy(sha256, tmp_path / f"copy-{number}")
        os.utime(tmp_path / "code" / sha256, (number + 1, number + 1))
    left = {p.name for p in (tmp_path / "code").iterdir()}
    assert left == set(kept[1:])
    await cache.copy(kept[0], tmp_path / "again")
    assert {p.name for p in (tmp_path / "code").iterdir()} == {kept[0], kept[2]}


async def test_code_cache_keeps_code_being_fetched(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    cache = CodeCache(tmp_path / "code", coordinator, limit=10)
    await cache.copy(coordinator.keep("a" * 1000), tmp_path / "copy-a")
    under_way = {f".{'b' * 64}.12ab.part", f"{'c' * 64}.tar"}
    for name in under_way:
        (tmp_path / "code" / name).touch()
        os.utime(tmp_path / "code" / name, (1, 1))
    await cache.copy(coordinator.keep("b" * 1000), tmp_path / "copy-b")
    assert under_way < {p.name for p in (tmp_path / "code").iterdir()}


async def test_code_cache_removes_leftovers_of_killed_agent(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    sha256 = coordinator.keep("print(1)")
    await CodeCache(folder, coordinator).copy(sha256, tmp_path / "a")
    (folder / f".{sha256}.12ab.part").mkdir()
    (folder / f"{sha256}.tar").touch()
    await CodeCache(folder, coordinator).copy(sha256, tmp_path / "b")
    assert [p.name for p in folder.iterdir()] == [sha256]
    assert coordinator.fetched == 1


async def test_code_cache_reports_failed_copy_in_one_line(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str, **_: object) -> None:
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr(
        shutil, "copytree", lambda a, b, **o: COPYTREE(a, b, copy_function=full, **o)
    )
    with pytest.raises(OSError, match=r"No space left on device: '\S+train\.py'$"):
        await cache.copy(coordinator.keep("print(1)"), tmp_path / "a")


@pytest.mark.parametrize("step", ["unpack", "_copy"])
async def test_cancelled_copy_waits_for_its_thread(
    cache: CodeCache, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:  # fmt: skip
    begun, release = threading.Event(), threading.Event()
    real = getattr(code_cache, step)

    def slow(*args: Path) -> None:
        begun.set()
        release.wait()
        real(*args)

    sha256 = coordinator.keep("print(1)")
    monkeypatch.setattr(code_cache, step, slow)
    first = asyncio.create_task(cache.copy(sha256, tmp_path / "a"))
    await asyncio.to_thread(begun.wait)
    # As a pause cancels it, and a resume asks again.
    first.cancel()
    second = asyncio.create_task(cache.copy(sha256, tmp_path / "b"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert not first.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert (tmp_path / "b" / "train.py").read_text() == "print(1)"
    assert coordinator.fetched == 1
    assert [p.name for p in (tmp_path / "code").iterdir()] == [sha256]
