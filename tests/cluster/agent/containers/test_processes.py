"""Processes in a container, whose first process is here one of the host."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainhall.cluster.agent.containers import process_server
from trainhall.cluster.agent.containers.processes import KILLED, ContainerProcesses

pytestmark = pytest.mark.processes


@contextlib.contextmanager
def held(folder: Path) -> Iterator[ContainerProcesses]:
    with contextlib.closing(ContainerProcesses(folder)) as processes:
        processes.hold()
        yield processes


@contextlib.contextmanager
def server(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = [sys.executable, process_server.__file__, str(folder)]
    with subprocess.Popen(program, env={"PATH": os.defpath, "OF_THE_IMAGE": "1"}) as process:
        try:
            yield process
        finally:
            process.kill()


def ends(processes: ContainerProcesses, count: int) -> dict[int, int]:
    """Wait until so many processes have ended."""
    found: dict[int, int] = {}
    until = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < until
        found |= dict(processes.reap())
        time.sleep(0.01)
    return found


def start(processes: ContainerProcesses, folder: Path, code: str, cwd: str = "/") -> int:
    fds = [
        os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("out", "err")
    ]
    try:
        return processes.start([sys.executable, "-c", code], {"OURS": "2"}, cwd, (fds[0], fds[1]))
    finally:
        for fd in fds:
            os.close(fd)


def test_process_has_the_umask_of_its_starter(tmp_path: Path) -> None:
    with server(tmp_path), held(tmp_path) as processes:
        before = os.umask(0o007)
        try:
            start(processes, tmp_path, "import os; print(oct(os.umask(0)))")
        finally:
            os.umask(before)
        ends(processes, 1)
    assert (tmp_path / "out").read_text() == "0o7\n"


def test_process_gets_variables_and_reports_its_end(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['OF_THE_IMAGE'], os.environ['OURS']); sys.exit(7)"
    with server(tmp_path), held(tmp_path) as processes:
        first = start(processes, tmp_path, code)
        second = start(processes, tmp_path, "import os; os.kill(os.getpid(), 15)")
        third = start(processes, tmp_path, "", cwd="/nosuch")
        assert ends(processes, 3) == {first: 7, second: -15, third: 127}
        assert processes.waits_for == []
    assert (tmp_path / "out").read_text() == "1 2\n"
    assert "the working folder /nosuch cannot be entered" in (tmp_path / "err").read_text()


def test_everything_ends_with_the_holder(tmp_path: Path) -> None:
    with server(tmp_path) as first, held(tmp_path) as processes:
        pid = start(processes, tmp_path, "import os, time; os.fork(); time.sleep(60)")
        processes.close()
        assert first.wait(20) == 0
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(20)


def test_process_that_has_no_session_yet_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            process_server.end_session(process.pid)
            assert process.wait(5) == KILLED
        finally:
            process.kill()


def test_container_that_dies_kills_its_processes(tmp_path: Path) -> None:
    with server(tmp_path) as first, held(tmp_path) as processes:
        pid = start(processes, tmp_path, "import time; time.sleep(60)")
        first.kill()
        assert ends(processes, 1) == {pid: KILLED}
    psutil.Process(pid).kill()


def test_second_holder_is_refused(tmp_path: Path) -> None:
    with server(tmp_path) as first, held(tmp_path) as processes:
        with held(tmp_path):
            pass
        pid = start(processes, tmp_path, "")
        assert ends(processes, 1) == {pid: 0}
        assert first.poll() is None
