"""The first process of an attempt's container: it starts the others, and ends with the shim.

    python process_server.py FOLDER

It runs with the Python of the image, so it imports nothing of ours. It listens in FOLDER. On a
connection comes one line of JSON, with the descriptors of the streams beside it:

    {"hold": true}                    the server ends when this connection does
    {"argv", "env", "cwd", "umask", "terminal"}
                                      start a process; its variables override those of the image

For a process the server answers {"pid": N}, and when it has ended {"status": N}, its wait status.
A connection that is closed before kills the process, with all of its session.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import termios
import time
from typing import Any

SOCKET_NAME = "container.sock"
UNUSED_SECONDS = 120.0
"""Without a connection that holds it for so long, the server ends."""
MAX_REQUEST_BYTES = 16 * 2**20
EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 126, 127


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        self._holder: socket.socket | None = None
        self._is_over = False
        self._unused_until = time.monotonic() + UNUSED_SECONDS

    def run(self) -> None:
        wakeup, writer = os.pipe()
        for end in (wakeup, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._selector.register(wakeup, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._is_over and (
            self._holder is not None or time.monotonic() < self._unused_until
        ):
            for key, _ in self._selector.select(None if self._holder is not None else 1.0):
                if key.fileobj == wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeup, 4096)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._closed(key.data)
            self._reap()
        for pid in list(self._running):
            end_session(pid)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(10.0)
        fds: list[int] = []
        try:
            request = receive(connection, fds)
            if request.get("hold"):
                if self._holder is not None:
                    raise ValueError("the container is held already")
                self._holder = connection
            else:
                pid = start(request, fds)
                self._running[pid] = connection
                send(connection, {"pid": pid})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            with contextlib.suppress(OSError):
                send(connection, {"error": str(error)})
            connection.close()
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _closed(self, connection: socket.socket) -> None:
        """End what a connection has started: its other end has left."""
        self._selector.unregister(connection)
        connection.close()
        if connection is self._holder:
            self._is_over = True
        for pid, of in list(self._running.items()):
            if of is connection:
                del self._running[pid]
                end_session(pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._running.pop(pid, None)
            if connection is not None:
                with contextlib.suppress(OSError):
                    send(connection, {"status": status})
                self._selector.unregister(connection)
                connection.close()


def receive(connection: socket.socket, fds: list[int]) -> dict[str, Any]:
    """Return a request; its descriptors are added to a list."""
    data = b""
    while not data.endswith(b"\n"):
        size = socket.CMSG_SPACE(3 * array.array("i").itemsize)
        part, beside, _, _ = connection.recvmsg(65536, size)
        for level, kind, content in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                fds.extend(found)
        data += part
        if not part or len(data) > MAX_REQUEST_BYTES:
            raise ValueError("the request is not complete")
    request: dict[str, Any] = json.loads(data)
    return request


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def start(request: dict[str, Any], fds: list[int]) -> int:
    """Start a process whose streams are the descriptors; return its pid."""
    argv, env, folder = request["argv"], request["env"], request["cwd"]
    umask = int(request["umask"])
    if len(fds) != 3:
        raise ValueError("a process has three streams")
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = EXIT_NOT_EXECUTABLE
    try:
        os.setsid()
        os.umask(umask)
        for number, fd in enumerate([os.dup(fd) for fd in fds]):
            os.dup2(fd, number)
        os.closerange(3, 65536)
        if request.get("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(env)
        try:
            os.chdir(folder)
        except OSError as error:
            code = EXIT_NOT_FOUND
            say(f"the working folder {folder} cannot be entered: {error.strerror}")
        else:
            os.execvpe(argv[0], argv, os.environ)
    except FileNotFoundError:
        code = EXIT_NOT_FOUND
        say(f"there is no program {argv[0]!r} in the container")
    except OSError as error:
        say(f"{argv[0]} cannot be run: {error.strerror}")
    finally:
        os._exit(code)


def say(text: str) -> None:
    os.write(2, f"trainhall: {text}\n".encode())


def end_session(leader: int) -> None:
    """Kill a child, and the processes of its session, whatever groups they have made."""
    found = {leader}  # by its pid: it may have been forked so lately that it leads none yet
    ended: set[int] = set()
    while found:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended |= found
        # Again: they may have forked meanwhile.
        found = members(leader) - ended


def members(session: int) -> set[int]:
    """Return the processes of a session."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(name)) == session:
                    found.add(int(name))
    return found


def main() -> None:
    # Relative: a path of a socket has at most 107 bytes.
    os.chdir(sys.argv[1])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET_NAME)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    listener.bind(SOCKET_NAME)
    os.umask(mask)
    listener.listen(64)
    os.chdir("/")
    Server(listener).run()


if __name__ == "__main__":
    main()
