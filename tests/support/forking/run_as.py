"""Agents that run their jobs as other users; for tests that run as root.

    python -m support.forking.run_as …      `trainhall …`

Jobs of other users need a Python that they can read. Where this one is below a folder of root's
alone, the program gets a view of the files of its own in which the folder holds just that.
"""

import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.agent_process import FOLDER_VARIABLE, AgentProcess
from support.holds import with_tests

from trainhall.cluster.agent.os_support.linux import IS_LINUX

_NEW_FILES = 0x20000  # CLONE_NEWNS
_BIND, _PRIVATE = 0x1000, 0x4000 | 0x40000  # MS_BIND, MS_REC | MS_PRIVATE

needs_root = pytest.mark.skipif(
    not IS_LINUX or os.geteuid() != 0, reason="only root may switch to other users"
)


def a_range(count: int = 50) -> str:
    """User ids that nothing else on this machine uses."""
    first = 200_000 + 100 * secrets.randbelow(10_000)
    return f"{first}-{first + count - 1}"


def a_user() -> str:
    """A user without rights, whom no program of this machine runs as."""
    names = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("games", "irc", "nobody") if name in names)


class RunAsAgent(AgentProcess):
    """An agent of root's with `--run-as`."""

    run_as = ""

    def start(self) -> None:
        url, token, data_dir, *_ = self._arguments
        env = with_tests() | {FOLDER_VARIABLE: str(self.folder), "TRAINHALL_JOIN_TOKEN": token}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # type: ignore[assignment]
                [
                    *(sys.executable, "-m", "support.forking.run_as", "agent"),
                    *("--coordinator", url, "--data-dir", data_dir, "--slots", "2"),
                    *(("--run-as", self.run_as) if self.run_as else ()),
                    *("--pass-env", "TRAINHALL_TEST*"),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
            )  # fmt: skip


@contextlib.contextmanager
def passable_folder() -> Iterator[Path]:
    """A folder through which every user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="trainhall-run-as-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def run_as_agent(url: str, token: str, run_as: str) -> Iterator[RunAsAgent]:
    """A running agent in a folder through which every user may pass."""
    with passable_folder() as folder:
        agent = RunAsAgent(folder, url, token)
        agent.run_as = run_as
        agent.start()
        try:
            yield agent
        finally:
            for process in agent.processes():
                with contextlib.suppress(Exception):
                    process.kill()
            assert agent.process is not None
            agent.process.kill()
            agent.process.wait()


def main() -> None:
    for path in map(Path, (sys.base_prefix, sys.prefix)):
        _make_reachable(path)
    from trainhall.cli.main import main as trainhall

    trainhall()


def _make_reachable(path: Path) -> None:
    closed = next((p for p in reversed(path.parents) if not p.stat().st_mode & 1), None)
    if closed is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(what: str, where: Path | str, kind: str | None, flags: int) -> None:
        names = [os.fsencode(name) if name is not None else None for name in (what, where, kind)]
        if libc.mount(*names, flags, None):
            raise OSError(ctypes.get_errno(), f"mount {what} {where}")

    if libc.unshare(_NEW_FILES):
        raise OSError(ctypes.get_errno(), "unshare")
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    mount("none", "/", None, _PRIVATE)
    mount("none", closed, "tmpfs", 0)
    closed.chmod(0o755)
    path.mkdir(parents=True)
    mount(f"/proc/self/fd/{fd}", path, None, _BIND)
    os.close(fd)


if __name__ == "__main__":
    main()
