"""Several attempts on this host, one after the other, without an agent.

On Linux a warm parent imports torch once and forks a shim for each attempt; it ends with this
process, however that ends, and shims and ranks end with it. Elsewhere each shim is a process of its
own that ends when its standard input closes.
"""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from trainhall.cli.base.errors import CliError
from trainhall.cli.local.local import execute_shim, read_status
from trainhall.cluster.agent.launch import warm_client
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command
from trainhall.training.link.status import ShimStatus

WATCH_SECONDS = 0.02
STOP_SECONDS = 10.0
"""Time for ranks that are asked to stop; then they are killed."""


class LocalShims:
    """Starts shims, and leaves none behind.

    Args:
        log: a file for what the warm parent says, which is nothing unless it is broken.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._warm: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._link is not None:
            self._link.close()
        if self._warm is not None:
            self._warm.kill()
            self._warm.wait()

    def run(self, folder: AttemptFolder) -> ShimStatus:
        """Run the attempt of a folder to its end, and say how it ended.

        Raises:
            CliError: no shim could be started, or it died.
        """
        ended = self._fork(folder) if linux.IS_LINUX else self._execute(folder)
        try:
            while not ended():
                time.sleep(WATCH_SECONDS)
        except BaseException:
            self._stop(folder, ended)
            raise
        status = read_status(folder)
        if status is None or status.outcome is None:
            with contextlib.suppress(OSError):
                lines = folder_ipc.log_path(folder).read_text(errors="replace").splitlines()[-20:]
                raise CliError("the process that starts the ranks has died", lines)
            raise CliError("the process that starts the ranks has died")
        return status

    def _stop(self, folder: AttemptFolder, ended: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while not ended() and time.monotonic() < deadline:
            folder_ipc.send_command(folder, Command.STOP)
            time.sleep(WATCH_SECONDS)

    def _fork(self, folder: AttemptFolder) -> Callable[[], bool]:
        """Ask the warm parent to fork a shim; the result tells whether it has ended."""
        if self._warm is None:
            self._start_warm()
        assert self._warm is not None
        arguments = [str(folder.path), str(self._warm.pid)]
        self._ask({"target": f"{warm_client.SHIM_MODULE}:main_bound", "arguments": arguments})

        def ended() -> bool:
            if folder_ipc.read_claim(folder) is folder_ipc.Claim.RELEASED:
                return True
            status = read_status(folder)
            return status is not None and status.outcome is not None

        return ended

    def _execute(self, folder: AttemptFolder) -> Callable[[], bool]:
        shim = execute_shim(folder)
        return lambda: shim.poll() is not None

    def _start_warm(self) -> None:
        self._warm, self._link = warm_client.execute(self._log, os.environ)
        self._answer()

    def _ask(self, request: dict[str, object]) -> None:
        assert self._link is not None
        self._link.sendall(json.dumps(request).encode() + b"\n")
        self._answer()

    def _answer(self) -> None:
        assert self._link is not None
        data = b""
        while not data.endswith(b"\n"):
            chunk = self._link.recv(4096)
            if not chunk:
                lines = self._log.read_text(errors="replace").splitlines()[-20:]
                raise CliError("the process that imports torch has exited", lines)
            data += chunk
        if error := json.loads(data).get("error"):
            raise CliError(str(error))
