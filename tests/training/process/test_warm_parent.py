"""The warm parent's protocol: readiness, forks that match new processes, its end."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.processes

PROBE = '''
import gc, json, os, random, signal, sys

def probe(path):
    """Write this process's state to a file."""
    state = {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "parent": os.getppid(),
        "torch": "torch" in sys.modules,
        "collects": gc.isenabled(),
        "random": random.random(),
        "files": sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [],
        "threads": len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1,
        "sigint": signal.getsignal(signal.SIGINT) == signal.SIG_DFL,
        "openblas": os.environ.get("OPENBLAS_NUM_THREADS"),
    }
    with open(path + ".new", "w") as file:
        json.dump(state, file)
    os.rename(path + ".new", path)
    return 0

def fail():
    raise RuntimeError("as asked")
'''


class Warm:
    """A warm parent and the agent's end of its socket."""

    def __init__(self, folder: Path, *modules: str, path: str | None = None) -> None:
        self.log = folder / "warm.log"
        ours, theirs = socket.socketpair()
        env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        env["PYTHONPATH"] = path or str(folder)
        with self.log.open("wb") as log, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainhall.training.process.warm_parent", *modules],
                stdin=theirs.fileno(), stdout=log, stderr=log, env=env,
            )  # fmt: skip
        self.socket = ours
        self.answers = ours.makefile("rb")

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.answers.readline()))

    def ask(self, target: str, *arguments: str) -> dict[str, Any]:
        request = {"target": target, "arguments": list(arguments)}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        return self.read()

    def close(self) -> None:
        self.answers.close()
        self.socket.close()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    folder = tmp_path_factory.mktemp("warm")
    (folder / "probe_module.py").write_text(PROBE)
    parent = Warm(folder)
    assert parent.read() == {"ready": True}
    yield parent
    parent.close()
    parent.process.kill()
    parent.process.wait()


def test_warm_parent_forks_match_new_processes(warm: Warm, tmp_path: Path) -> None:
    answers = []
    for i in range(2):
        path = tmp_path / f"state-{i}"
        pid = warm.ask("probe_module:probe", str(path))["pid"]
        eventually("the fork to write its state", path.exists)
        answers.append(json.loads(path.read_text()))
        assert answers[i]["pid"] == answers[i]["session"] == pid
        assert answers[i]["parent"] == warm.process.pid
        assert answers[i]["torch"]
        assert answers[i]["collects"]
        assert answers[i]["threads"] == 1
        assert answers[i]["sigint"]
        assert answers[i]["openblas"] is None
        # Standard input, output, error, and the one that lists them.
        assert len(answers[i]["files"]) == 4
        eventually("the fork to be reaped", partial(lambda pid: not psutil.pid_exists(pid), pid))
    assert answers[0]["random"] != answers[1]["random"]


def test_warm_parent_survives_a_bad_request(warm: Warm, tmp_path: Path) -> None:
    for line in (
        b"nonsense", b"7", b'"text"', b"null", b"[]", b"{}", b"[" * 100_000, b"\xff",
        b'{"target": 1, "arguments": []}', b'{"target": "a:b", "arguments": "c"}',
    ):  # fmt: skip
        warm.socket.sendall(line + b"\n")
        assert list(warm.read()) == ["error"]
    assert "pid" in warm.ask("probe_module:fail")
    assert "pid" in warm.ask("no_such_module:main")
    path = tmp_path / "state"
    warm.ask("probe_module:probe", str(path))
    eventually("the next fork to write its state", path.exists)


@pytest.mark.processes
def test_warm_parent_ends_with_the_agent(tmp_path: Path) -> None:
    parent = Warm(tmp_path)
    try:
        assert parent.read() == {"ready": True}
        parent.close()
        assert parent.process.wait(timeout=PATIENCE) == 0
    finally:
        parent.process.kill()
        parent.process.wait()


@pytest.mark.processes
def test_warm_parent_reports_missing_torch(tmp_path: Path) -> None:
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.13: not found')")
    parent = Warm(tmp_path)
    try:
        answer = parent.read()
        assert answer["missing"]
        assert "libcudart.so.13: not found" in answer["error"]
        assert "pip install 'trainhall[train]'" in answer["error"]
        assert parent.process.wait(timeout=PATIENCE) == 1
    finally:
        parent.close()
