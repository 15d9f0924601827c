"""What is left on disk of attempts that never ran."""

import asyncio
import hashlib
import shutil
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from support.agent_process import launch_of, until

from trainhall.cluster.agent import attempts as module
from trainhall.cluster.agent import code
from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.protocol import Assignment
from trainhall.training.link import CheckpointPlan, Launch, replace_json

SHA256 = hashlib.sha256(b"code").hexdigest()


def made(tmp_path: Path) -> Attempts:
    # Neither a coordinator nor a warm parent is asked: nothing gets so far.
    attempts = Attempts(DataDir(tmp_path), cast(Any, None), cast(Any, None), lambda: None)
    unpacked = tmp_path / "code" / SHA256
    unpacked.mkdir(parents=True)
    (unpacked / "train.py").write_text("print(1)")
    return attempts


def coded() -> Launch:
    launch = launch_of({"script": {"path": "train.py"}, "code": SHA256})
    return launch.model_copy(update={"checkpoint": CheckpointPlan(folder="", upload=False)})


async def test_a_cancelled_attempt_leaves_no_code_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = code._copy

    def slow(unpacked: Path, to: Path) -> None:
        begun.set()
        go_on.wait()
        real(unpacked, to)

    monkeypatch.setattr(code, "_copy", slow)
    attempts = made(tmp_path)
    attempts.desire([Assignment(launch=coded(), goal="run")])
    attempts.reconcile()
    await asyncio.to_thread(begun.wait)
    attempts.desire([Assignment(launch=coded(), goal="stop")])
    attempts.reconcile()
    (report,) = attempts.reports()
    assert (report.phase, report.outcome) == ("exited", "stopped")
    go_on.set()
    await until("it to be removed", lambda: list((tmp_path / "attempts").glob("*/*")) == [])
    attempts.desire([])
    attempts.reconcile()
    await until("it to be forgotten", attempts.empty)
    assert list((tmp_path / "attempts").iterdir()) == []
    await attempts.close()


async def test_the_agent_goes_on_while_many_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed_by: list[int] = []
    go_on = threading.Event()
    real = shutil.rmtree

    def slow(path: Path, **options: Any) -> None:
        removed_by.append(threading.get_ident())
        go_on.wait()
        real(path, **options)

    folder = DataDir(tmp_path).attempt(("job", 1, 1))
    folder.path.mkdir(parents=True)
    replace_json(folder.launch, coded())
    attempts = made(tmp_path)
    attempts.find()
    monkeypatch.setattr(module.shutil, "rmtree", slow)
    attempts.desire([Assignment(launch=coded(), goal="stop")])
    attempts.reconcile()
    # A shim that is on its way finds nothing, long before the last file is gone.
    assert not folder.path.exists()
    (report,) = attempts.reports()
    assert report.outcome == "stopped"
    await until("the removal to begin", lambda: removed_by)
    assert threading.get_ident() not in removed_by
    attempts.desire([])
    attempts.reconcile()
    go_on.set()
    await until("it to be forgotten", attempts.empty)
    assert list((tmp_path / "attempts").iterdir()) == []
    await attempts.close()
