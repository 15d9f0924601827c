"""Installed environments: built once at a time, cleaned after a crash, removed by least use."""

import asyncio
import os
from pathlib import Path

import pytest

from trainhall.cluster.agent.environments.store import EnvironmentStore

KEYS = [f"{number:064x}" for number in range(4)]


def store_at(folder: Path, *used: Path, limit: int = 100) -> EnvironmentStore:
    return EnvironmentStore(folder, lambda: used, readable=True, limit=limit)


def write(part: Path) -> None:
    part.mkdir()
    (part / "file").write_bytes(b"x" * 40)
    (part / "file").chmod(0o666)  # as uv's lock


async def fill(part: Path) -> None:
    write(part)


def folders(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir()}


async def test_concurrent_attempts_build_it_once(tmp_path: Path) -> None:
    store, builds = store_at(tmp_path), 0

    async def build(part: Path) -> None:
        nonlocal builds
        builds += 1
        await asyncio.sleep(0)
        await fill(part)

    found = await asyncio.gather(*(store.get(KEYS[0], build) for _ in range(3)))
    assert {*found} == {tmp_path / KEYS[0]}
    assert builds == 1
    assert found[0].stat().st_mode & 0o777 == 0o555
    assert (found[0] / "file").stat().st_mode & 0o466 == 0o444


async def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)

    async def fail(part: Path) -> None:
        await fill(part)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        await store.get(KEYS[0], fail)
    assert not folders(tmp_path)
    assert (await store.get(KEYS[0], fill)).is_dir()


async def test_leftovers_of_a_killed_agent_go(tmp_path: Path) -> None:
    for name in (KEYS[0], f"{KEYS[1]}.ab12.tmp"):
        await fill(tmp_path / name)
    store_at(tmp_path).clean()
    assert folders(tmp_path) == {KEYS[0]}


async def test_least_used_goes_unless_in_use(tmp_path: Path) -> None:
    store = store_at(tmp_path, tmp_path / KEYS[0])
    for age, key in enumerate(KEYS[:3]):
        store.release(await store.get(key, fill))
        os.utime(tmp_path / key, (age, age))
    # The first is used by an attempt, the second was used before the third.
    wanted = await store.get(KEYS[3], fill)
    assert folders(tmp_path) == {KEYS[0], KEYS[2], KEYS[3]}
    assert wanted.name == KEYS[3]
