"""`trainhall` in processes that are forked from one which has torch imported.

What such a command starts by `python -m` is a fork as well: importing torch is most of what a short
run costs. In all else they are the processes that a user has, with parents, sessions, arguments and
environments of their own. Real starts are tested beside them.
"""

import contextlib
import importlib
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from support.holds import with_tests

from trainhall.cluster.agent.launch.warm_client import RANK_MODULE, SHIM_MODULE, WARM_MODULE
from trainhall.cluster.agent.os_support import linux
from trainhall.training.process import warm_parent
from trainhall.training.spec.plan import PLANNER

COMMAND = "trainhall.cli.main"
FORKED = (WARM_MODULE, SHIM_MODULE, PLANNER)
"""Modules that a command runs by `python -m`."""
_REQUEST_BYTES = 1 << 20
_PADDING_BYTES = 32768
"""Room to show the variables of a command, and of what it starts in turn."""

_popen_executes = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_parameters = inspect.signature(_popen_executes)


class ForkedProcess:
    """A command; to be used as a `subprocess.Popen` with pipes for its output, as text."""

    def __init__(self, server: "ForkServer", pid: int, output: list[Any]) -> None:
        self.pid = pid
        self.returncode: Any = None
        self._server = server
        self._output = output

    def poll(self) -> Any:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> Any:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # The server may have reaped it and not have said so yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        texts = []
        for file in self._output:
            file.seek(0)
            texts.append(file.read().decode())
        return texts[0], texts[1]


class ForkServer:
    """Starts commands."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        padding = {linux.PADDING_VARIABLE: "." * _PADDING_BYTES}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.forked"],
                stdin=theirs.fileno(), start_new_session=True,
                env=with_tests() | {"OMP_NUM_THREADS": "1"} | padding,
            )  # fmt: skip
        self._codes: dict[int, int] = {}
        self._files = contextlib.ExitStack()

    def start(self, arguments: list[str], env: Mapping[str, str] | None = None) -> ForkedProcess:
        """`trainhall` with these arguments, in a session of its own."""
        request = {"arguments": arguments, "env": dict(os.environ if env is None else env)}
        output = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - to the end
        for file in output:
            self._files.enter_context(file)
        fds = [file.fileno() for file in output]
        socket.send_fds(self._link, [json.dumps(request).encode()], fds)
        while "pid" not in (answer := self._receive(None)):
            pass
        return ForkedProcess(self, answer["pid"], output)

    def code_of(self, pid: int, timeout: float | None) -> int:
        while pid not in self._codes:
            self._receive(timeout)
        return self._codes[pid]

    def _receive(self, timeout: float | None) -> dict[str, Any]:
        if not select.select([self._link], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(["trainhall"], timeout or 0)
        message: dict[str, Any] = json.loads(self._link.recv(_REQUEST_BYTES))
        if "ended" in message:
            self._codes[message["ended"]] = message["code"]
        return message

    def close(self) -> None:
        self._files.close()
        self._link.close()
        self._process.wait()


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


def _serve(link: socket.socket) -> None:
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([link.fileno(), reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            _report_deaths(link)
        if link.fileno() in ready:
            message, fds, _, _ = socket.recv_fds(link, _REQUEST_BYTES, 2)
            if not message:
                return
            request = json.loads(message)
            pid = os.fork()
            if pid == 0:
                os.setsid()
                subprocess.Popen._execute_child = _fork  # type: ignore[attr-defined]
                null = os.open(os.devnull, os.O_RDONLY)
                _become(COMMAND, request["arguments"], (null, *fds), request["env"])
            for fd in fds:
                os.close(fd)
            link.send(json.dumps({"pid": pid}).encode())


def _report_deaths(link: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(BrokenPipeError):
                link.send(json.dumps({"ended": pid, "code": code}).encode())


def _fork(popen: Any, *given: Any) -> None:
    """Stand for `Popen._execute_child`: of our modules a fork becomes what would be executed."""
    asked = _parameters.bind(popen, *given).arguments
    command = asked["args"]
    if not isinstance(command, list) or command[1:2] != ["-m"] or command[2] not in FORKED:
        _popen_executes(popen, *given)
        return
    pid = os.fork()
    if pid == 0:
        if asked["start_new_session"]:
            os.setsid()
        fds = asked["p2cread"], asked["c2pwrite"], asked["errwrite"]
        _become(command[2], command[3:], fds, asked["env"])
    popen.pid = pid
    popen._child_created = True
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    popen._close_pipe_fds(*(asked[name] for name in names))


def _become(
    module: str, arguments: list[str], fds: tuple[int, ...], env: Mapping[str, str] | None
) -> NoReturn:
    """Be `python -m module`, and end."""
    code: Any = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for standard, fd in enumerate(fds):
            if fd not in (-1, standard):
                os.dup2(fd, standard)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if env is not None:
            before = dict(os.environ)
            os.environ.clear()
            os.environ.update(env)
            tempfile.tempdir = None  # as that environment has it
            new = {k: v for k, v in env.items() if before.get(k) != v}
            new.pop(linux.PADDING_VARIABLE, None)
            assert linux.show_environment(new), "no room for the variables"
        sys.argv = [module, *arguments]
        code = importlib.import_module(module).main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")  # as the interpreter does
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    warm_parent.warm_up([SHIM_MODULE, RANK_MODULE, PLANNER, COMMAND])
    _serve(asked)
