"""A file that one process at a time may hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainhall.cluster.file_lock import FileLock

HOLDS = """
import sys
from pathlib import Path
from trainhall.cluster.file_lock import FileLock
with FileLock(Path(sys.argv[1])) as lock:
    print(lock.taken(), flush=True)
    sys.stdin.read()
"""
NO_LOCKS = """
import fcntl
def no_locks(*_):
    raise OSError(37, "No locks available")
fcntl.flock = no_locks
"""


def test_file_lock_is_held_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "made" / "a.lock"
    with FileLock(path) as first, FileLock(path) as second:
        assert first.taken()
        assert not second.taken()
    with FileLock(path) as third:
        assert third.taken()


@pytest.mark.processes
def test_kernel_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLDS, str(path)]
    with (
        FileLock(path) as lock,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert not lock.taken()
        holder.kill()
        holder.wait(10)
        assert lock.taken()


@pytest.mark.processes
def test_file_lock_is_granted_without_lock_support(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_LOCKS + HOLDS, str(tmp_path / "a.lock")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    # Commands and agents, which set up no log for it, keep stdout for data.
    assert done.stdout == "True\n"
    assert done.stderr == (f'lock_unsupported folder={tmp_path} error="No locks available"\n')


def test_others_do_not_list_a_new_folder(tmp_path: Path) -> None:
    with FileLock(tmp_path / "data" / "a.lock"):
        assert (tmp_path / "data").stat().st_mode & 0o066 == 0
