"""What is left on disk of attempts that never ran."""

import asyncio
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from support.cluster.agent_process import launch_of, script, until
from support.cluster.shims import Run

from trainhall.cluster.agent import observed
from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings
from trainhall.cluster.agent.launch import code_cache
from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.cluster.wire.protocol import Assignment
from trainhall.training.fencing import FencingToken
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.link.spool import EventSpool
from trainhall.training.link.status import RankState, ShimStatus

SHA256 = hashlib.sha256(b"code").hexdigest()


def made(tmp_path: Path) -> Attempts:
    # Neither a coordinator nor a warm parent is asked: nothing gets so far.
    attempts = Attempts(
        DataDir(tmp_path), cast(Any, None), cast(Any, None), lambda: None, JobSettings({})
    )
    unpacked = tmp_path / "code" / SHA256
    unpacked.mkdir(parents=True)
    (unpacked / "train.py").write_text("print(1)")
    return attempts


def is_forgotten(attempts: Attempts) -> bool:
    """Reconcile as the agent does after each change: what was written is shipped meanwhile."""
    attempts.reconcile()
    return attempts.empty()


def coded() -> Launch:
    launch = launch_of({"script": {"path": "train.py"}, "code": SHA256})
    return launch.model_copy(update={"checkpoint": CheckpointPlan(folder="", upload=False)})


async def test_cancelled_attempt_leaves_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()
    real = code_cache._copy

    def slow(unpacked: Path, to: Path) -> None:
        begun.set()
        release.wait()
        real(unpacked, to)

    monkeypatch.setattr(code_cache, "_copy", slow)
    attempts = made(tmp_path)
    attempts.desire([Assignment(launch=coded(), goal="run")])
    attempts.reconcile()
    await asyncio.to_thread(begun.wait)
    attempts.desire([Assignment(launch=coded(), goal="stop")])
    attempts.reconcile()
    (report,) = attempts.observed.reports()
    assert (report.phase, report.outcome) == ("exited", "stopped")
    release.set()
    await until("it to be removed", lambda: list((tmp_path / "attempts").glob("*/*")) == [])
    attempts.desire([])
    await until("it to be forgotten", partial(is_forgotten, attempts))
    assert list((tmp_path / "attempts").iterdir()) == []
    await attempts.close()


async def test_agent_stays_responsive_during_file_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed_by: list[int] = []
    release = threading.Event()
    real = shutil.rmtree

    def slow(path: Path, **options: Any) -> None:
        removed_by.append(threading.get_ident())
        release.wait()
        real(path, **options)

    folder = DataDir(tmp_path).attempt(FencingToken("job", 1, 1))
    folder.path.mkdir(parents=True)
    replace_json(folder.launch, coded())
    attempts = made(tmp_path)
    attempts.observed.find()
    monkeypatch.setattr(shutil, "rmtree", slow)
    attempts.desire([Assignment(launch=coded(), goal="stop")])
    attempts.reconcile()
    # A shim that is on its way finds nothing, long before the last file is gone.
    assert not folder.path.exists()
    (report,) = attempts.observed.reports()
    assert report.outcome == "stopped"
    await until("the removal to begin", lambda: removed_by)
    assert threading.get_ident() not in removed_by
    attempts.desire([])
    attempts.reconcile()
    release.set()
    await until("it to be forgotten", partial(is_forgotten, attempts))
    assert list((tmp_path / "attempts").iterdir()) == []
    await attempts.close()


class Waiting:
    """A shim's process that gets no processor."""

    returncode = None

    def poll(self) -> None:
        return None


async def late(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> AttemptFolder:
    """The folder of an attempt whose every shim is late; the next look gives it up."""
    monkeypatch.setattr(attempts._launcher, "_execute", lambda attempt: Waiting())
    launch = launch_of({"script": {"path": "/train.py"}})
    plan = CheckpointPlan(folder="", upload=False)
    launch = launch.model_copy(update={"checkpoint": plan})
    attempts.desire([Assignment(launch=launch, goal="run")])
    attempts.reconcile()
    (attempt,) = attempts.observed.by_token.values()
    for starts in range(1, observed.MAX_STARTS + 1):
        await until(
            f"start {starts}", partial(lambda n: attempt.starts == n and not attempt.task, starts)
        )
        assert attempt.started_at is not None
        attempt.started_at -= observed.START_SECONDS
        if starts < observed.MAX_STARTS:
            attempts.refresh()
            attempts.reconcile()
    return attempt.folder


async def test_late_shim_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = made(tmp_path)
    folder = await late(attempts, monkeypatch)
    folder_ipc.log_path(folder).write_text("no processor for you")
    attempts.refresh()
    (report,) = attempts.observed.reports()
    assert report.outcome == "failed"
    assert report.failure is not None
    assert "cannot be started on this host" in report.failure.message
    assert report.failure.log_tail == "no processor for you"
    with pytest.raises(FileNotFoundError):
        folder_ipc.claim(folder)
    await until("all to be shipped", lambda: attempts.observed.reports()[0].shipped)
    attempts.desire([])
    await until("it to be forgotten", partial(is_forgotten, attempts))
    assert list((tmp_path / "attempts").iterdir()) == []
    await attempts.close()


async def test_shim_that_claims_at_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = made(tmp_path)
    folder = await late(attempts, monkeypatch)
    looks = [folder_ipc.Claim.NONE, folder_ipc.Claim.HELD, folder_ipc.Claim.HELD]
    monkeypatch.setattr(folder_ipc, "read_claim", lambda folder: looks.pop(0))
    attempts.refresh()
    (report,) = attempts.observed.reports()
    assert (report.phase, report.outcome) == ("starting", None)
    assert folder.launch.exists()
    assert [attempt.folder for attempt in attempts.observed.live()] == [folder]
    attempts.refresh()
    assert looks == []
    await attempts.close()


def in_place(generation: int, *resume: str) -> Launch:
    """Of a host that has rank 1 of two."""
    return launch_of({"task": {"name": "synthetic"}, "resources": {"workers": 2}}).model_copy(
        update={
            "generation": generation,
            "in_place": True,
            "ranks": [RankSlot(rank=1, local_rank=0, device_kind="cpu", device_index=0)],
            "checkpoint": CheckpointPlan(folder="/shared", upload=False, resume=list(resume)),
        }
    )


def write_status(folder: AttemptFolder, generation: int, began_in: int, **more: Any) -> None:
    """The shim says which process is rank 1."""
    status: dict[str, Any] = {
        "job_id": "job",
        "attempt": 1,
        "generation": generation,
        "phase": "running",
        "ranks": [RankState(rank=1, generation=began_in, pid=1).model_dump()],
    }
    replace_json(folder.status, ShimStatus.model_validate(status | more))


def supervised(tmp_path: Path, launch: Launch) -> AttemptFolder:
    folder = DataDir(tmp_path).attempt(launch.token)
    folder.path.mkdir(parents=True)
    replace_json(folder.launch, launch)
    return folder


def adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *checkpoints: str
) -> tuple[AttemptFolder, Attempts]:
    """An attempt whose shim runs, found by an agent."""
    monkeypatch.setattr(folder_ipc, "read_claim", lambda folder: folder_ipc.Claim.HELD)
    folder = supervised(tmp_path, in_place(1, *checkpoints))
    write_status(folder, 1, began_in=1)
    attempts = made(tmp_path)
    attempts.observed.find()
    return folder, attempts


async def test_process_started_within_generation_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its predecessor left when the generation before had no place for it; see `Members.renew`."""
    folder, attempts = adopted(tmp_path, monkeypatch)
    replace_json(folder.launch, in_place(2))
    write_status(folder, 2, began_in=1)
    attempts.refresh()
    write_status(folder, 2, began_in=2)
    attempts.refresh()
    folder.rank(1).mkdir(parents=True)
    events = EventSpool(folder.events(1, 2), rank=1)
    events.append("note", {"message": "here"})
    write_status(folder, 2, began_in=2, phase="exited", outcome="stopped")
    monkeypatch.setattr(folder_ipc, "read_claim", lambda folder: folder_ipc.Claim.RELEASED)
    attempts.refresh()
    (report,) = attempts.observed.reports()
    assert report.outcome == "stopped"
    assert not report.shipped, "there is something to ship yet"
    await attempts.close()


@pytest.mark.parametrize(("has_begun", "ends_with_agent"), [(False, False), (True, True)])
async def test_mark_of_an_agents_end_needs_a_shim(
    tmp_path: Path, has_begun: bool, ends_with_agent: bool
) -> None:
    """An agent may end while an attempt waits for torch: it starts under the next one."""
    folder = supervised(tmp_path, in_place(1))
    if has_begun:
        folder_ipc.lock_path(folder).write_text("1")  # a shim ran here and has ended
    (folder.path / "agent-stopped").touch()
    attempts = made(tmp_path)
    attempts.observed.find()
    (attempt,) = attempts.observed.by_token.values()
    await until("its end", lambda: attempt.outcome is not None or not has_begun)
    assert attempt.ended_with_agent == ends_with_agent
    await attempts.close()


@pytest.mark.parametrize("content", [b"", None])
async def test_damaged_launch_puts_off_a_regrouping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    folder, attempts = adopted(tmp_path, monkeypatch)
    folder.launch.unlink()
    if content is not None:
        folder.launch.write_bytes(content)
    write_status(folder, 2, began_in=1)
    attempts.refresh()
    assert [*attempts.observed.by_token] == [FencingToken("job", 1, 1)]
    replace_json(folder.launch, in_place(2))
    attempts.refresh()
    assert [*attempts.observed.by_token] == [FencingToken("job", 1, 2)]
    await attempts.close()


async def test_full_disk_puts_off_a_regrouping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[AttemptFolder] = []
    monkeypatch.setattr(folder_ipc, "notify_launch", commands.append)
    folder, attempts = adopted(tmp_path, monkeypatch)
    attempts.desire([Assignment(launch=in_place(2), goal="run")])

    def full(self: DataDir, name: str, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(DataDir, "_replace", full)
        attempts.reconcile()
    assert Launch.model_validate_json(folder.launch.read_bytes()).generation == 1
    attempts.reconcile()
    # A shim without room for what its ranks need is told again.
    attempts.reconcile()
    assert Launch.model_validate_json(folder.launch.read_bytes()).generation == 2
    assert commands == [folder, folder]
    assert DataDir(tmp_path).read_launched() == {"job": FencingToken("job", 1, 2)}
    await attempts.close()


async def test_restarted_ranks_resume_from_their_attempts_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that had the state may fall before the others get it."""
    monkeypatch.setattr(folder_ipc, "notify_launch", lambda folder: None)
    folder, attempts = adopted(tmp_path, monkeypatch, "step-00000010-a1-g1")
    later = in_place(2, "step-00000040-a1-g1", "step-00000010-a1-g1")
    attempts.desire([Assignment(launch=later, goal="run")])
    attempts.reconcile()
    given = Launch.model_validate_json(folder.launch.read_bytes())
    assert given.generation == 2
    assert given.checkpoint.resume == ["step-00000040-a1-g1", "step-00000010-a1-g1"]
    await attempts.close()


@pytest.mark.parametrize("leave", [lambda path: path.write_bytes(b""), Path.mkdir])
async def test_unreadable_status_ends_the_attempt_not_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leave: Callable[[Path], object]
) -> None:
    """A power cut leaves files empty that were not on disk yet; a disk may fail to read one."""
    folder = supervised(tmp_path, in_place(1))
    leave(folder.status)
    folder_ipc.lock_path(folder).write_text("1")  # a shim ran here and has ended
    attempts = made(tmp_path)
    attempts.observed.find()
    await until("its end", lambda: attempts.observed.reports()[0].outcome is not None)
    (report,) = attempts.observed.reports()
    assert (report.phase, report.outcome, report.ranks) == ("exited", "failed", [])
    assert caplog.text.count(f"status_unreadable path={folder.status}") == 1
    await attempts.close()


async def test_agent_stays_responsive_while_processes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_by: list[int] = []
    signalled, ended = asyncio.Event(), threading.Event()

    def marked(_folder: Path) -> set[int]:
        looked_by.append(threading.get_ident())
        return set() if ended.is_set() else {1 << 22}

    monkeypatch.setattr(processes, "marked", marked)
    monkeypatch.setattr(processes, "send", lambda _pids, _number: signalled.set())
    folder = DataDir(tmp_path).attempt(FencingToken("job", 1, 1))
    folder.path.mkdir(parents=True)
    folder.launch.write_bytes(b"")
    attempts = made(tmp_path)
    attempts.observed.find()
    ending = asyncio.create_task(attempts.observed.end_unreadable())
    await signalled.wait()
    assert not ending.done(), "it waits for them, and the loop does not"
    ended.set()
    await ending
    assert threading.get_ident() not in looked_by
    await attempts.close()


@pytest.mark.processes
async def test_attempt_with_unreadable_launch_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ranks would run beside those of the next attempt."""
    spec = script(tmp_path, "import time; print('here', flush=True); time.sleep(600)")
    launch = launch_of(spec)
    shim = Run(DataDir(tmp_path).attempt(launch.token).path, launch)
    try:
        shim.wait_for_output(b"here")
        shim.folder.launch.write_bytes(b"")
        attempts = made(tmp_path)
        attempts.observed.find()
        await attempts.observed.end_unreadable()
        assert shim.process.wait(timeout=60) == 0
        assert not processes.marked(shim.folder.path)
        assert not shim.folder.path.parent.exists()
        assert attempts.observed.reports() == []
        assert f"attempt_unreadable path={shim.folder.launch}" in caplog.text
        await attempts.close()
    finally:
        shim.end()
