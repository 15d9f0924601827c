"""The agent's side of a warm parent that does not get ready."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster.agent_process import until

from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.launch import warm_client
from trainhall.cluster.agent.launch.warm_client import WarmParent, WarmParentError
from trainhall.training.link.folder import AttemptFolder


@pytest.mark.processes
async def test_warm_client_stops_an_endless_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_client, "IMPORT_SECONDS", 0.01)
    parent = WarmParent(DataDir(tmp_path), os.environ)
    begun: list[subprocess.Popen[bytes]] = []

    def execute() -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            stuck = [sys.executable, "-c", "import signal; signal.pause()"]
            parent._process = subprocess.Popen(stuck, stdin=theirs.fileno())
        begun.append(parent._process)
        return ours

    monkeypatch.setattr(parent, "_execute", execute)
    for tries in (1, 2):
        asked = parent.start_shim(AttemptFolder(tmp_path), tmp_path / "doorbell")
        with pytest.raises(WarmParentError, match="not ready within"):
            await asyncio.wait_for(asked, 20)
        assert len(begun) == tries
        await until("its end", lambda: begun[-1].poll() is not None)
    await parent.stop()
