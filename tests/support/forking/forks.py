"""Programs that are forked from a process with their modules imported, instead of executed.

Importing is most of what a start costs a processor: 1.5 s for a coordinator, 3 s for torch; and the
tests start hundreds. A fork has an environment, a folder, files, a session and an end of its own,
as an executed program does, and is found by its environment. That the real commands start from
nothing is shown by those tests that execute them: of `up`, of `server` and of the warm parent.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import IOBase
from pathlib import Path
from typing import IO, Any, NoReturn

import typer.main
from support.holds import with_tests

from trainhall.cluster.agent.launch.warm_client import SHIM_MODULE
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.shim.rank_process import RANK_MODULE
from trainhall.training.process.forked import PADDING_VARIABLE, close_files, reseed
from trainhall.training.process.warm_parent import warm_up
from trainhall.training.spec.plan import PLANNER

TRAINHALL = "trainhall.cli.main:main"
COMMAND = "support.forking.command:main"
"""`trainhall`, with what it starts by `python -m` forked in turn."""
RANKS = "support.groups.rank_server:main"
TORCHRUN = "torch.distributed.run:main"
SCRIPT = "support.forking.script:main"
"""`python SCRIPT`."""
COORDINATOR = "support.forking.coordinator:main"
"""`trainhall server` whose SQLite needs no thread."""
AGENT = "support.forking.agent:main"
"""`trainhall agent`."""
SMALL_AGENT = "support.forking.agent:small"
"""The agent of `AgentProcess`."""
SHIM_OF_FORKED_SCRIPTS = "support.forking.shim:main"
WARM_PARENTS = "TRAINHALL_TESTS_WARM_PARENTS"
"""The variable that tells a forked agent where its warm parents are forked."""
FORKED_SCRIPTS = "TRAINHALL_TESTS_FORKED_SCRIPTS"
"""The variable that tells a forked agent to have its scripts and planners forked, too."""
EAGER_OUTPUTS = "TRAINHALL_TESTS_EAGER_OUTPUTS"
"""The variable that tells a forked agent to store new files at once, not every two minutes."""
SHARED = "TRAINHALL_TESTS_SHARED"
"""The variable that names the folder in which the workers of a run find each other's parents."""
NETWORK = "TRAINHALL_TESTS_NETWORK"
"""The variable that names the network namespace of a program, and of what it forks in turn."""
PROGRAMS = (
    "trainhall.cli.main",
    "trainhall.cli.base.client",
    "trainhall.cli.jobs.follow",
    "trainhall.cli.spec.specs",
    "trainhall.api.server",
    "trainhall.cluster.agent.daemon",
    "trainhall.cluster.agent.shim.main",
    "trainhall.cluster.experiments.analyses",
    "trainhall.db.migrations.fresh",
    "trainhall.db.migrations.runner",
    "aiosqlite",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "certifi",
    "encodings.idna",
    "httpcore",
    "numpy",
    "numpy.random",
    "pathspec",
    "typer._adapters",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "uvloop",
    "yaml",
)
"""What the coordinator, the agent, shims of scripts and the commands import sooner or later."""
TORCH = "torch"
_WITH_TORCH = (COMMAND, RANKS, TORCHRUN, SCRIPT)
_MESSAGE_BYTES = 1 << 17
_PADDING = {PADDING_VARIABLE: "." * 32768}
"""Room to show the variables of a program, and of what it forks in turn."""
READY = b"ready\n"
"""What a parent writes when it can be forked."""
_ALIVE = "alive"
"""A named pipe of a run, which is open for writing until it ends."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class CannotForkError(Exception):
    """A process that was to be forked ended before."""


class Fork:
    """A forked program, with what tests use of `subprocess.Popen`."""

    def __init__(self, link: socket.socket, arguments: Sequence[str]) -> None:
        self._link = link
        self.args = arguments
        self.returncode: Any = None
        self.stdin: IO[Any] | None = None
        self.output: Sequence[IO[bytes]] = ()
        self.pid = int(link.recv(_MESSAGE_BYTES))

    def poll(self) -> Any:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._link.recv(_MESSAGE_BYTES))
            self._link.close()
        return int(self.returncode)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote, when it has ended."""
        self.wait(timeout)
        texts = []
        for file in self.output:
            file.seek(0)
            texts.append(file.read().decode())
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # Its parent may have reaped it and not have sent the exit code yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    target: str,
    arguments: Sequence[str] = (),
    *,
    files: Iterable[IO[Any] | IOBase | socket.socket | int],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    parent: str = "",
) -> Fork:
    """Start `package.module:function` as a program with these arguments.

    Args:
        files: its standard input, output and errors.
        parent: the address of the process to fork; left out, the one that has what is needed.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not parent:
        parent = (warm_parents if target in _WITH_TORCH else programs)().address
    link.connect(parent)
    request = {
        "target": target,
        "arguments": list(arguments),
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
    }
    fds = [file if isinstance(file, int) else file.fileno() for file in files]
    socket.send_fds(link, [json.dumps(request).encode()], fds)
    return Fork(link, arguments)


def start(
    files: contextlib.ExitStack,
    target: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    given: str | None = None,
    parent: str = "",
) -> Fork:
    """Start a program that can be communicated with; `given` is its standard input.

    Args:
        files: closes those that hold its input and output.
        parent: see `fork`.
    """
    temporary = tempfile.TemporaryFile
    opened = [files.enter_context(temporary()) for _ in range(3)]
    opened[0].write((given or "").encode())
    opened[0].seek(0)
    process = fork(target, arguments, files=opened, env=env, cwd=cwd, parent=parent)
    process.output = opened[1:]
    return process


def run(
    target: str, arguments: Sequence[str] = (), *, timeout: float = 90, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The program's output and exit code; the options are those of `start`."""
    with contextlib.ExitStack() as files:
        process = start(files, target, arguments, **options)
        try:
            out, err = process.communicate(timeout)
        finally:
            process.kill()
            code = process.wait()
    return subprocess.CompletedProcess(arguments, code, out, err)


@dataclass(frozen=True)
class Parent:
    """A process that is forked."""

    pid: int
    address: str


def programs() -> Parent:
    """The parent of whatever needs no torch."""
    return _parent(*PROGRAMS, COORDINATOR.partition(":")[0])


def warm_parents() -> Parent:
    """The parent of the agents' warm parents, and of whatever else needs torch."""
    return _parent(TORCH)


def agent_environment() -> dict[str, str]:
    """What a forked agent needs."""
    return {WARM_PARENTS: warm_parents().address, "TRAINHALL_PASS_ENV": NETWORK}


@functools.cache
def _parent(*modules: str) -> Parent:
    shared = os.environ.get(SHARED)
    if shared is None:
        process, address = _start_parent(modules, subprocess.PIPE)
        atexit.register(end, process)
        return Parent(process.pid, address)
    note = Path(shared, modules[0])
    with Path(shared, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            with open(os.open(Path(shared, _ALIVE), os.O_RDONLY)) as alive:
                process, address = _start_parent(modules, alive)
            process.returncode = 0  # it ends with the run, not with this worker of it
            note.write_text(f"{process.pid} {address}")
    pid, address = note.read_text().split()
    return Parent(int(pid), address)


@contextlib.contextmanager
def shared_parents() -> Iterator[None]:
    """Let the processes that this one starts meanwhile share parents, which end with it."""
    with tempfile.TemporaryDirectory(prefix="trainhall-tests-") as folder:
        os.mkfifo(Path(folder, _ALIVE))
        # The parents read its end, however this process ends.
        alive = os.open(Path(folder, _ALIVE), os.O_RDWR)
        os.environ[SHARED] = folder
        yield
        del os.environ[SHARED]
        os.close(alive)


def _start_parent(
    modules: Sequence[str], alive: IO[Any] | int
) -> tuple[subprocess.Popen[bytes], str]:
    # Threads of ranks that wait for each other crawl; OpenMP reads it when torch does.
    env = with_tests() | {"OMP_NUM_THREADS": "1"}
    return start_parent("support.forking.forks", modules, alive, env=env, session=True)


def start_parent(
    module: str,
    arguments: Sequence[str],
    alive: IO[Any] | int,
    *,
    env: Mapping[str, str],
    session: bool,
) -> tuple[subprocess.Popen[bytes], str]:
    """Run a module that calls `be_forked`; returns its process and its address.

    Args:
        arguments: those of the module, behind the number of its socket.
        alive: its standard input, at whose end it ends.
        session: it has a session of its own.

    Raises:
        CannotForkError: it ended instead.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Not an abstract address: that would be of one network namespace.
    address = Path(tempfile.mkdtemp(prefix="trainhall-tests-"), "forks")
    with listener:
        listener.bind(str(address))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(listener.fileno()), *arguments],
            stdin=alive, stdout=subprocess.PIPE, pass_fds=[listener.fileno()],
            env={**env, **_PADDING}, start_new_session=session,
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as answers:
        if answers.readline() == READY:
            return process, str(address)
    code = process.wait()
    if process.stdin is not None:
        process.stdin.close()
    _remove(address)
    raise CannotForkError(f"{module} ended with {code}")


def _remove(address: Path) -> None:
    address.unlink()
    address.parent.rmdir()


def end(process: subprocess.Popen[bytes]) -> None:
    """Have it end, as it does too where this process is killed: its standard input is closed."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork what is asked for; returns in each fork, with what it shall be."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    _remove(Path(listener.getsockname()))
                    os._exit(0)
                if key.fileobj is not listener:
                    selector.unregister(key.fileobj)
                    _report_end(key.fd, *key.data)
                    continue
                link, _ = listener.accept()
                message, fds, _, _ = socket.recv_fds(link, _MESSAGE_BYTES, 3)
                if not message:
                    link.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    return json.loads(message), fds
                for fd in fds:
                    os.close(fd)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, link))
                with contextlib.suppress(OSError):
                    link.send(str(pid).encode())


def _report_end(pidfd: int, pid: int, link: socket.socket) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with link, contextlib.suppress(OSError):  # whoever asked may have ended before
        link.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(
    target: str,
    arguments: Sequence[str],
    fds: Sequence[int],
    env: Mapping[str, str],
    keep: tuple[int, ...] = (),
) -> Callable[[], Any]:
    """Leave all of the parent behind but its modules, and files to keep; the program's function."""
    for number, fd in enumerate(fds):
        if fd not in (-1, number):
            os.dup2(fd, number)
    close_files(keep)
    if space := env.get(NETWORK):
        with Path("/run/netns", space).open() as file:
            enter_network(file.fileno())
    shown = {k: v for k, v in env.items() if os.environ.get(k) != v}
    shown.pop(PADDING_VARIABLE, None)
    assert linux.show_environment(shown), "no room for the variables"
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # as that environment has it
    reseed()
    module, _, function = target.partition(":")
    sys.argv = [module, *arguments]
    found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    return found


def enter_network(namespace: int) -> None:
    """What this thread opens from now on is of the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def end_with(program: Callable[[], Any]) -> NoReturn:
    """End as the interpreter does, but for taking the modules apart: that would copy the memory
    which is shared with the parent, page by page."""
    code: Any = None
    try:
        code = program()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")  # as the interpreter does
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # a reader that left
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code or 0)


def _build_commands() -> None:
    """Build the tree of commands once, not in each fork."""
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(importlib.import_module("trainhall.cli.main").app)


def _keep_at_exit() -> None:
    """Let no fork take apart, at its end, what was imported here: torch unregisters its operators
    one by one, which takes longer than the fork does."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False


def be_forked(listener: socket.socket, *, session: bool = True) -> NoReturn:
    """Become, in forks of this process, what is asked for.

    Args:
        session: each fork has a session of its own, which no Ctrl-C of this one's terminal reaches.
    """
    gc.collect()
    gc.freeze()
    _keep_at_exit()
    os.environ.pop(PADDING_VARIABLE, None)
    os.write(1, READY)
    request, fds = _serve(listener)
    listener.detach()
    if session:
        os.setsid()
    os.chdir(request["cwd"])
    end_with(become(request["target"], request["arguments"], fds, request["env"]))


def main() -> None:
    """Import the modules and be forked."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    if sys.argv[2:] == [TORCH]:
        warm_up([SHIM_MODULE, RANK_MODULE, PLANNER, *PROGRAMS])
    else:
        for name in sys.argv[2:]:
            importlib.import_module(name)
    if "trainhall.cli.main" in sys.modules:
        _build_commands()
    be_forked(listener)


if __name__ == "__main__":
    main()
