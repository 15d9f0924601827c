"""What an agent starts for an attempt, and what it lets a container have of the host."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster.agent_process import until
from support.nodes.containers import FakeEngine
from support.nodes.containers import fake_engine as fake_engine

from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings
from trainhall.cluster.agent.launch.launcher import Launcher, _is_folder_of
from trainhall.cluster.agent.os_support.accounts import Owner


@pytest.mark.processes
async def test_commands_are_waited_for_by_none_else(
    fake_engine: FakeEngine, tmp_path: Path
) -> None:
    settings = JobSettings({})
    launcher = Launcher(
        DataDir(tmp_path),
        cast(Any, None),
        cast(Any, SimpleNamespace(pid=None)),
        settings,
        lambda: None,
    )
    engine = settings.engine.find()
    assert engine is not None
    running = asyncio.create_task(engine.run("run", "--entrypoint", "sleep", "lab:1", "600"))
    await until("its command", lambda: engine.running)
    # Else the agent would take their exit codes, as of processes that it has adopted.
    assert engine.running <= launcher.pids
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not launcher.pids


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as others")
def test_closed_folder_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "closed" / "open").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    assert _is_folder_of(tmp_path / "closed" / "open", None)
    assert not _is_folder_of(tmp_path / "closed" / "open", Owner(70001, 70001))
