"""Whole saves that are killed at each system call, or whose system calls fail."""

import errno
import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from support.cluster.attempts import RankServer
from support.storage.traced_saves import NOT_TRACED, state

from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.manifest import verify_folder
from trainhall.training.checkpoint.format.names import scan
from trainhall.training.fencing import FencingToken

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="strace is of Linux"),
    pytest.mark.skipif(shutil.which("strace") is None, reason="STRACE IS NOT INSTALLED: no kills"),
]
CALLS = "mkdir,openat,write,fsync,rename,unlinkat,unlink,rmdir"
"""By these a checkpoint is written and an old one removed. Of files that are only read the opening
is left out: a kill there is the same as one at the call that follows."""


class Call(NamedTuple):
    name: str
    number: int
    """Among those of its name: strace counts each by itself, and each thread by itself."""


def checkpointer(folder: Path, attempt: int) -> Checkpointer:
    return Checkpointer(
        folder / "checkpoints", FencingToken("job", attempt, 1), None, lambda done: None
    )


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of step 1."""
    folder = tmp_path_factory.mktemp("begun")
    first = checkpointer(folder, 1)
    first.save(1, state(1))
    first.wait()
    return folder


def save(
    ranks: RankServer,
    begun: Path,
    folder: Path,
    options: list[str],
    *,
    keep: int = 9,
    continues: bool = False,
) -> int:
    """Save step 2 under strace, and step 3 without it if `continues`; return the exit code."""
    shutil.copytree(begun, folder)
    order = {"strace": options, "keep": keep, "continues": continues}
    (folder / "order.json").write_text(json.dumps(order))
    (code,) = ranks.call("support.storage.traced_saves:run", 1, folder)
    if code == NOT_TRACED:
        pytest.skip("STRACE MAY NOT TRACE HERE: no kills")
    return code


def calls_of_a_save(ranks: RankServer, begun: Path, folder: Path, keep: int) -> list[Call]:
    """The calls by which step 2 is saved and what is older removed, in order."""
    log = folder.with_name("trace")
    options = ["-o", str(log), "-e", f"trace={CALLS}"]
    assert save(ranks, begun, folder, options, keep=keep) == 0
    return calls_of_the_writer(log)


def calls_of_the_writer(log: Path) -> list[Call]:
    """What strace saw of the thread that saves."""
    threads: dict[str, Counter[str]] = {}
    calls: list[tuple[str, Call]] = []
    for line in log.read_text().splitlines():
        found = re.match(r"(\d+) +(\w+)\((.*)", line)
        if found is None:
            continue  # the rest of a call that another thread interrupted
        thread, name, arguments = found.groups()
        counts = threads.setdefault(thread, Counter())
        counts[name] += 1
        if name != "openat" or "O_CREAT" in arguments:
            calls.append((thread, Call(name, counts[name])))
    writer = next(thread for thread, call in calls if call.name == "fsync")
    return [call for thread, call in calls if thread == writer]


def newest(folder: Path) -> tuple[int, list[int]]:
    """The step that the newest committed checkpoint holds in all its parts, and all steps."""
    found = scan(folder / "checkpoints")
    assert [verify_folder(f.path) for f in found] == [[]] * len(found)
    target = state(0)
    loaded = checkpointer(folder, 3).load([f.path.name for f in found], target)
    assert loaded is not None
    assert loaded.notes == [], "the newest itself is good"
    expected = state(loaded.step)
    assert loaded.extra == expected["extra"]
    assert str(target["model"]) == str(expected["model"])
    assert target["optimizer"] == expected["optimizer"]
    return loaded.step, [f.name.step for f in found]


def test_newest_checkpoint_survives_kill_at_any_call(
    ranks: RankServer, begun: Path, tmp_path: Path
) -> None:
    calls = calls_of_a_save(ranks, begun, tmp_path / "whole", keep=1)
    assert len(calls) > 15
    assert {call.name for call in calls} >= {"mkdir", "openat", "write", "fsync", "rename"}
    seen: set[tuple[int, ...]] = set()
    for name, number in calls:
        folder = tmp_path / f"{name}-{number}"
        kill = ["-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}"]
        assert save(ranks, begun, folder, kill, keep=1) == -9, (name, number)
        step, steps = newest(folder)
        assert step == max(steps)
        seen.add(tuple(steps))
        # The next attempt gets rid of what the kill left, and saves.
        following = checkpointer(folder, 3)
        following.save(3, state(3))
        following.wait()
        assert newest(folder) == (3, [3, *steps])
        assert not [p for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]
    # The kills did fall before, within and after the commit and the removal.
    assert seen == {(1,), (2, 1), (2,)}


def save_sharded(
    ranks: RankServer, begun: Path, folder: Path, rank: int, options: list[str]
) -> list[int]:
    """Save step 2 on two ranks, one of them under strace; their exit codes."""
    shutil.copytree(begun, folder)
    (folder / "order.json").write_text(json.dumps({"strace": options, "rank": rank}))
    codes = ranks.call("support.storage.traced_saves:run_sharded", 2, folder)
    if NOT_TRACED in codes:
        pytest.skip("STRACE MAY NOT TRACE HERE: no kills")
    return codes


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_sharded_checkpoint_is_atomic_under_kill(
    ranks: RankServer, begun: Path, tmp_path: Path, every: int
) -> None:
    seen: dict[int, set[tuple[int, ...]]] = {0: set(), 1: set()}
    for rank in seen:
        log = tmp_path / f"trace-{rank}"
        trace = ["-o", str(log), "-e", f"trace={CALLS}"]
        assert save_sharded(ranks, begun, tmp_path / f"whole-{rank}", rank, trace) == [0, 0]
        calls = calls_of_the_writer(log)
        assert {"openat", "write", "fsync"} <= {call.name for call in calls}
        for name, number in calls[::every]:
            folder = tmp_path / f"{rank}-{name}-{number}"
            kill = ["-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}"]
            codes = save_sharded(ranks, begun, folder, rank, kill)
            assert codes[rank] == -9, (rank, name, number)
            step, steps = newest(folder)
            assert step == max(steps)
            seen[rank].add(tuple(steps))
            following = checkpointer(folder, 3)
            following.save(3, state(3))
            following.wait()
            assert newest(folder) == (3, [3, *steps])
            assert not [p for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]
    assert (1,) in seen[0] & seen[1]
    # The ranks that do not commit are killed before anything can be.
    assert seen[1] == {(1,)}
    if every == 1:
        assert seen[0] == {(1,), (2, 1), (2,)}


def test_save_succeeds_after_a_failed_call(ranks: RankServer, begun: Path, tmp_path: Path) -> None:
    numbers = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT)
    calls = calls_of_a_save(ranks, begun, tmp_path / "whole", keep=9)
    for i, (name, number) in enumerate(calls):
        folder = tmp_path / f"{name}-{number}"
        error = numbers[i % len(numbers)]
        injection = f"inject={name}:error={errno.errorcode[error]}:when={number}"
        fail = ["-e", f"trace={name}", "-e", injection]
        code = save(ranks, begun, folder, fail, continues=True)
        assert code == error, (name, number, os.strerror(error))
        step, steps = newest(folder)
        # Only what fails behind the rename leaves the checkpoint, which is whole.
        assert (step, steps) in ((3, [3, 1]), (3, [3, 2, 1]))
        assert not [p for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]
