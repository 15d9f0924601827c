"""Child processes end with their parent, however it ends."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from support.waiting import eventually

from trainhall.cli.server import supervise

# Stands in for `trainhall server`: notes its pid, and ends as the real ones do.
PROGRAM = """
import os, sys, time
from pathlib import Path
from trainhall.cli.server.supervise import end_with_parent
end_with_parent()
Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
PARENT = """
import sys, time
from pathlib import Path
from trainhall.cli.server import supervise
child = supervise.Child("program", [], Path(sys.argv[2]), env={})
child._arguments = [sys.executable, "-c", sys.argv[3], sys.argv[1]]
child.start()
time.sleep(600)
"""


def child_of(tmp_path: Path, code: str, *arguments: str) -> supervise.Child:
    child = supervise.Child(
        "program", [], tmp_path / "logs" / "program.log", env={supervise.MARK: mark_of(tmp_path)}
    )
    child._arguments = [sys.executable, "-c", code, *arguments]
    return child


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_when_its_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    note = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(note), str(tmp_path / "log"), PROGRAM]
    )
    pid = int(eventually("the child", lambda: note.exists() and note.read_text()))
    child = psutil.Process(pid)
    parent.send_signal(number)
    parent.wait()
    eventually("the child to end", lambda: not child.is_running())


@pytest.mark.processes
def test_stop_is_graceful_where_the_child_lets_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = child_of(tmp_path, PROGRAM, str(note))
    child.start()
    eventually("the child", note.exists)
    assert child.is_running
    assert child.stop(10, threading.Event())
    assert not child.is_running
    assert child.exit_text() == "the program was ended by SIGTERM"


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.processes
def test_hurried_stop_kills_a_stubborn_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "FORCE_SECONDS", 0.2)
    child = child_of(tmp_path, STUBBORN)
    child.start()
    eventually("its output", lambda: "up" in child.log.read_text())
    force = threading.Event()
    threading.Timer(0.1, force.set).start()
    assert not child.stop(60, force)
    assert child.exit_text() == "the program was ended by SIGKILL"


@pytest.mark.processes
def test_crash_looping_child_is_not_restarted(tmp_path: Path) -> None:
    child = child_of(tmp_path, "print('no luck'); raise SystemExit(7)")
    child.start()
    for _ in range(supervise.MAX_QUICK_RESTARTS):
        eventually("its end", lambda: not child.is_running)
        assert child.restart_if_ended()
    eventually("its end", lambda: not child.is_running)
    with pytest.raises(supervise.ChildFailedError, match="6 times in a row") as caught:
        child.restart_if_ended()
    assert caught.value.details[-1] == "no luck"
    child.stop(1, threading.Event())


@pytest.mark.processes
def test_sweep_finds_processes_of_other_sessions(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
    )
    child = child_of(tmp_path, code)
    child.start()
    note = tmp_path / "pid"
    pid = int(eventually("the grandchild", lambda: note.exists() and note.read_text()))
    assert psutil.pid_exists(pid)
    child.stop(5, threading.Event())
    assert supervise.sweep(mark_of(tmp_path)) == 1
    eventually("the grandchild to end", lambda: not is_alive(pid))
    assert supervise.sweep(mark_of(tmp_path)) == 0


def mark_of(tmp_path: Path) -> str:
    """A mark of the test's own: others may run beside it."""
    return str(tmp_path)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_mark_never_matches_its_owner() -> None:
    assert os.environ.get(supervise.MARK) is None
    assert supervise.sweep("no such mark") == 0
