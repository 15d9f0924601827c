"""Processes in an attempt's container, as those who start them see them (`process_server`)."""

import array
import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainhall.cluster.agent.containers.process_server import SOCKET_NAME

START_SECONDS = 60.0
"""Time for the container to come up."""
ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.02
KILLED = -9


class InnerProcess:
    """A process inside. It is killed if its connection is closed first."""

    def __init__(self, pid: int, connection: socket.socket, rest: bytes) -> None:
        self.pid = pid
        self._connection = connection
        self._data = rest

    def fileno(self) -> int:
        return self._connection.fileno()

    def poll(self) -> int | None:
        """Return its exit code, or below zero its signal; None: it runs. It does not block.

        With the container it counts as killed.
        """
        self._connection.setblocking(False)
        while b"\n" not in self._data:
            try:
                part = self._connection.recv(4096)
            except BlockingIOError:
                return None
            except OSError:
                part = b""
            if not part:
                return KILLED
            self._data += part
        return os.waitstatus_to_exitcode(int(json.loads(self._data)["status"]))

    async def wait(self) -> int:
        """Wait for its end; return as `poll`."""
        loop = asyncio.get_running_loop()
        while (code := self.poll()) is None:
            ready = asyncio.Event()
            loop.add_reader(self._connection.fileno(), ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._connection.fileno())
        self.close()
        return code

    def close(self) -> None:
        self._connection.close()


class ContainerProcesses:
    """
    Args:
        folder: the attempt's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holder: socket.socket | None = None
        self._running: dict[int, InnerProcess] = {}

    def hold(self) -> None:
        """Wait until the container is up, and keep it until `close` or the end of this process.

        Raises:
            OSError: it does not come up.
        """
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self._holder = self._connect()
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL_SECONDS)
        self._holder.sendall(b'{"hold": true}\n')

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: tuple[int, int]
    ) -> int:
        """Start a process without input, and return its pid on the host.

        Args:
            env: its variables, which override those of the image.
            output: descriptors of its output and error output.

        Raises:
            OSError: it cannot be started.
        """
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            process = self.execute(argv, env, cwd, (null, *output))
        finally:
            os.close(null)
        self._running[process.pid] = process
        return process.pid

    def execute(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        streams: tuple[int, int, int],
        *,
        terminal: bool = False,
    ) -> InnerProcess:
        """Start a process with the umask of this one.

        Args:
            terminal: its input is a terminal, which it is to control.

        Raises:
            OSError: it cannot be started.
        """
        request = {
            "argv": list(argv), "env": dict(env), "cwd": cwd, "umask": _umask(),
            "terminal": terminal,
        }  # fmt: skip
        data = json.dumps(request).encode() + b"\n"
        connection = self._connect()
        try:
            connection.settimeout(ANSWER_SECONDS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
            sent = connection.sendmsg([data], [rights])
            connection.sendall(data[sent:])
            answer = b""
            while b"\n" not in answer:
                part = connection.recv(4096)
                if not part:
                    raise ConnectionAbortedError("the container has ended")
                answer += part
            line, _, rest = answer.partition(b"\n")
            found = json.loads(line)
            if "pid" not in found:
                raise OSError(str(found.get("error")))
        except BaseException:
            connection.close()
            raise
        return InnerProcess(int(found["pid"]), connection, rest)

    @property
    def waits_for(self) -> list[int]:
        """Return the descriptors that become readable when a process has ended."""
        return [process.fileno() for process in self._running.values()]

    def reap(self) -> list[tuple[int, int]]:
        """Return pids and codes of the processes that have ended since the last call."""
        ended = []
        for pid, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                process.close()
                del self._running[pid]
                ended.append((pid, code))
        return ended

    def close(self) -> None:
        """Let the container end, with all that runs in it."""
        for process in self._running.values():
            process.close()
        self._running.clear()
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        # By the descriptor of the folder: the whole path may be too long for a socket.
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(folder)
        return connection


def _umask() -> int:
    """Return the umask of this process; `os.umask` would change it for other threads meanwhile."""
    status = Path("/proc/self/status").read_text()
    (umask,) = (line.split()[1] for line in status.splitlines() if line.startswith("Umask:"))
    return int(umask, 8)
