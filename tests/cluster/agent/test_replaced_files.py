"""A job replaces the files of its attempt: its attempt may fail, the agent does not."""

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from support.cluster.agent_process import launch_of, until
from support.waiting import PATIENCE

from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.coordinator_link.http_api import Source
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings
from trainhall.cluster.agent.shim import folder_ipc, isolation, outcome
from trainhall.cluster.agent.shim.folder_ipc import Claim
from trainhall.cluster.agent.shim.hang import stack_dumps
from trainhall.cluster.agent.shipping.spools import LogShipper
from trainhall.training.fencing import FencingToken
from trainhall.training.link import progress
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Command
from trainhall.training.link.regular_file import read_regular
from trainhall.training.link.status import RankState, ShimStatus


def leave_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def leave_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def leave_link(path: Path) -> None:
    """To a file that never ends."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def leave_loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path)


def leave_giant(path: Path) -> None:
    """A terabyte without content."""
    with path.open("wb") as file:
        file.truncate(2**40)


def leave_garbage(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


ATTACKS = [leave_pipe, leave_folder, leave_link, leave_loop, leave_giant, leave_garbage]
Attack = Callable[[Path], None]


def quickly(work: Callable[[], Any]) -> Any:
    """Return what it returns; fail if it waits."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for the job"
    assert results, "it raised"
    return results[0]


def attempt_of(agent: Path, job_id: str) -> AttemptFolder:
    """An attempt that runs under a shim."""
    plan = CheckpointPlan(folder="", upload=False)
    launch = launch_of({"script": {"path": "/train.py"}}, job_id=job_id, checkpoint=plan)
    folder = DataDir(agent).attempt(launch.token)
    folder.rank(0).mkdir(parents=True)
    for path in (folder.stdout(0), folder.stderr(0), folder.metrics(0), folder.events(0)):
        path.touch()
    replace_json(folder.launch, launch)
    replace_json(
        folder.status,
        ShimStatus(
            job_id=job_id, attempt=1, generation=1, phase="running",
            ranks=[RankState(rank=0, pid=1)],
        ),
    )  # fmt: skip
    Control(folder.control, create=True).close()
    return folder


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lock that is one is held by a shim."""
    real = folder_ipc.read_claim

    def read_claim(folder: AttemptFolder) -> Claim:
        path = folder_ipc.lock_path(folder)
        return Claim.HELD if not os.path.lexists(path) or path.is_file() else real(folder)

    monkeypatch.setattr(folder_ipc, "read_claim", read_claim)


FILES: list[Callable[[AttemptFolder], Path]] = [
    lambda folder: folder.status,
    lambda folder: folder.launch,
    lambda folder: folder.control,
    lambda folder: folder.stdout(0),
    lambda folder: folder.metrics(0),
    lambda folder: folder.events(0),
    folder_ipc.command_path,
]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_agent_polls_all_attempts_despite_replaced_files(
    tmp_path: Path, running: None, attack: Attack
) -> None:
    folders = [attempt_of(tmp_path, f"job{n}") for n in range(len(FILES) + 1)]
    attempts = Attempts(
        DataDir(tmp_path), cast(Any, None), cast(Any, None), lambda: None, JobSettings({})
    )
    attempts.observed.find()
    for folder, file in zip(folders[1:], FILES, strict=True):
        attack(file(folder))

    def poll() -> list[str]:
        attempts.observed.refresh()
        attempts.observed.live_tasks()
        for attempt in attempts.observed.by_token.values():
            folder_ipc.send_command(attempt.folder, Command.RUN)
        return sorted(report.job_id for report in attempts.observed.reports())

    assert quickly(poll) == [folder.path.parent.name for folder in folders]
    innocent = attempts.observed.by_token[FencingToken("job0", 1, 1)]
    assert innocent.status is not None
    assert innocent.status.phase == "running"
    await attempts.close()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_agent_starts_despite_replaced_files(
    tmp_path: Path, running: None, attack: Attack
) -> None:
    folders = [attempt_of(tmp_path, f"job{n}") for n in range(len(FILES) + 1)]
    for folder, file in zip(folders[1:], FILES, strict=True):
        attack(file(folder))
    attempts = Attempts(
        DataDir(tmp_path), cast(Any, None), cast(Any, None), lambda: None, JobSettings({})
    )
    quickly(attempts.observed.find)
    found = {token.job_id for token in attempts.observed.by_token}
    # Without its launch an attempt cannot be taken up: it is ended.
    assert found == {folder.path.parent.name for folder in folders} - {"job2"}
    await attempts.close()


@pytest.mark.parametrize("attack", [leave_pipe, leave_folder, leave_link, leave_loop])
async def test_replaced_lock_ends_the_attempt(tmp_path: Path, attack: Attack) -> None:
    folder = attempt_of(tmp_path, "job")
    attack(folder_ipc.lock_path(folder))
    attempts = Attempts(
        DataDir(tmp_path), cast(Any, None), cast(Any, None), lambda: None, JobSettings({})
    )
    attempts.observed.find()
    await until("its end", lambda: attempts.observed.reports()[0].outcome == "failed")
    await attempts.close()


@pytest.mark.parametrize("attack", ATTACKS)
def test_shim_reads_replaced_files_without_waiting(tmp_path: Path, attack: Attack) -> None:
    folder = attempt_of(tmp_path, "job")
    (folder.path / "progress").mkdir()
    pages = folder.path / "progress" / "7.bin"
    last_ack = folder.path / "last-ack.bin"
    for path in (pages, last_ack, folder.stderr(0), folder.control):
        attack(path)
    assert quickly(lambda: progress.read(folder.path, 7)) is None
    assert isinstance(quickly(lambda: outcome.last_lines(folder.stderr(0))), str)
    assert quickly(lambda: isolation.IsolationWatch(folder, 60.0).poll(0.0)) is not None
    quickly(partial(isolation.write_last_ack, folder, 1.0))
    assert isinstance(quickly(lambda: Control.is_listened(folder.control)), bool)


@pytest.mark.parametrize("attack", [leave_pipe, leave_folder, leave_link, leave_loop])
def test_shim_saves_stacks_despite_replaced_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Attack
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    folder = attempt_of(tmp_path, "job")
    folder.stderr(0).write_text("a line\n")
    attack(folder.rank(0) / "stacks.txt")
    quickly(partial(stack_dumps.save, folder, {0: os.getpid()}, {0}))
    log = folder.stderr(0).read_text()
    assert log.startswith("a line\n[trainhall] no progress; stacks of rank 0:\n")


@pytest.mark.parametrize("attack", [leave_pipe, leave_folder, leave_link, leave_loop])
async def test_replaced_output_holds_up_no_shipping(tmp_path: Path, attack: Attack) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"a line\n")
    source = Source("job", 1, 0, "0-12345678", generation=1)
    shipper = LogShipper(source, path, cast(Any, None), "stdout")
    assert shipper.has_more()
    attack(path)
    assert not shipper.has_more()
    assert not await shipper.ship()


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"four")
    assert read_regular(path, 4) == b"four"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(path, 3)
    for attack in (leave_pipe, leave_link, leave_loop):
        attack(path)
        with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
            read_regular(path, 2**20)
