"""Child processes that end with their parent, however it ends.

Each child has a session of its own, so that Ctrl-C reaches the parent alone and it decides the
order. Its standard input is a pipe that only the parent holds: when the parent is killed the pipe
closes, and the child (`--supervised`, see `end_with_parent`) ends itself as on SIGTERM. Everything
below a child inherits a mark in its environment, by which what it failed to end is found and ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from trainhall.cli.base.errors import CliError

MARK = "TRAINHALL_STARTED_BY"
SHOWN_LINES = 15
MAX_QUICK_RESTARTS = 5
"""Restarts in a row, each sooner than STEADY_SECONDS after the last, before giving up."""
STEADY_SECONDS = 60.0
FORCE_SECONDS = 4.0
"""Time for a child after a second request to end."""


class ChildFailedError(CliError):
    """A child ended on its own."""


class Child:
    """One program of ours as a child process, with its output in a file."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        *,
        env: dict[str, str],
        inherit: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._arguments = [sys.executable, "-m", "trainhall.cli.main", *arguments, "--supervised"]
        self._env = {**os.environ, **env}
        self._inherit = tuple(inherit)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._quick_ends = 0

    def start(self) -> None:
        """Start it with a new log; the last one is kept beside it."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._process is None and self.log.exists():
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        self._started_at = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                pass_fds=self._inherit,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart_if_ended(self) -> bool:
        """Start it again when it ended on its own; True when that happened.

        Raises:
            ChildFailedError: it keeps ending.
        """
        if self.is_running:
            return False
        steady = time.monotonic() - self._started_at > STEADY_SECONDS
        self._quick_ends = 0 if steady else self._quick_ends + 1
        if self._quick_ends > MAX_QUICK_RESTARTS:
            raise self.failure(f"the {self.name} ended {self._quick_ends} times in a row")
        self._close_stdin()
        self.start()
        return True

    def failure(self, message: str) -> ChildFailedError:
        return ChildFailedError(
            f"{message}; its log is {self.log} and ends with:", self.last_lines()
        )

    def exit_text(self) -> str:
        """Return how it ended, as text."""
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return f"the {self.name} has not ended"
        if code < 0:
            return f"the {self.name} was ended by {signal.Signals(-code).name}"
        return f"the {self.name} ended with exit code {code}"

    def last_lines(self) -> list[str]:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            return lines[-SHOWN_LINES:]
        return []

    def stop(self, timeout: float, force: threading.Event) -> bool:
        """Send SIGTERM, again with `force`; return False: it took SIGKILL after all.

        That comes `timeout` seconds after the first, and `FORCE_SECONDS` after the second.
        """
        process = self._process
        if process is None:
            return True
        graceful = True
        if process.poll() is None:
            process.terminate()
            self._wait(process, timeout, force)
            if process.poll() is None and force.is_set():
                process.terminate()
                self._wait(process, FORCE_SECONDS)
            if process.poll() is None:
                graceful = False
                process.kill()
                process.wait()
        self._close_stdin()
        return graceful

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        timeout: float,
        force: threading.Event | None = None,
    ) -> None:
        deadline = time.monotonic() + timeout
        while process.poll() is None and time.monotonic() < deadline:
            if force is not None and force.is_set():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)

    def _close_stdin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def sweep(mark: str) -> int:
    """Kill every process that carries the mark in its environment; how many there were."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=5)
    return len(found)


def end_with_parent() -> None:
    """Send this process SIGTERM when its standard input closes: its parent has ended."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
