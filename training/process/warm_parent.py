"""The warm parent: a process with torch imported, whose forks begin to train in milliseconds.

    python -m trainhall.training.process.warm_parent [MODULE ...]

Standard input is a socket to the agent, and at its end this process ends: the agent is gone. The
modules are imported after torch; then one JSON object a line goes each way:

    → {"ready": true}    or    {"error": "…", "missing": true} and the end; `missing`: no torch here
    ← {"target": "package.module:function", "arguments": ["…"]}
    → {"pid": 4711}      or    {"error": "…"}

The fork calls the function with the arguments and leaves with its result. It leads a session of its
own, so that what ends the warm parent, or a terminal, does not end it.

The parent stays a single thread that runs no operator and never asks for a GPU: only so is a fork
as good as a new process.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any

from trainhall.training.process.forked import EXIT_CRASHED, PADDING_VARIABLE, close_files, reseed

TORCH_MODULES = ("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.optim")
"""The first optimizer that is built pulls in `torch._dynamo` and some 800 modules: 0.7 s."""

# Left to itself numpy's OpenBLAS starts a thread per core at import.
_THREAD_LIMITS = {"OPENBLAS_NUM_THREADS": "1"}


class WarmUpError(Exception):
    """Failure to prepare this process; the message says why, and what to do."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        self.missing = missing
        """True if torch is missing: no other way of starting a built-in task works either."""
        super().__init__(message)


def main() -> int:
    link = socket.socket(fileno=os.dup(0))
    # Nothing else may read the agent's requests; what is printed goes to standard error.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    # The agent decides when this ends; Ctrl-C reaches both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        warm_up(sys.argv[1:])
    except WarmUpError as error:
        _answer(link, {"error": str(error), "missing": error.missing})
        return 1
    _answer(link, {"ready": True})
    serve(link)
    return 0


def warm_up(modules: list[str]) -> None:
    """Import torch and the modules.

    Raises:
        WarmUpError: one of them cannot be imported, or leaves threads behind.
    """
    # It served its purpose in the process's own memory and is nothing that a script should see.
    os.environ.pop(PADDING_VARIABLE, None)
    added = {k: v for k, v in _THREAD_LIMITS.items() if k not in os.environ}
    os.environ.update(added)
    # Imports leave hardly any garbage behind: looking for it takes a fifth of their time.
    gc.disable()
    try:
        _import_all(modules)
    finally:
        gc.enable()
        for name in added:
            del os.environ[name]
    if num_threads() > 1:
        raise WarmUpError(
            f"importing {', '.join([*TORCH_MODULES, *modules])} left {num_threads()} threads "
            "running; a fork would lose them"
        )
    gc.collect()
    gc.freeze()


def _import_all(modules: list[str]) -> None:
    try:
        for name in TORCH_MODULES:
            importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise WarmUpError(
            f"torch cannot be imported by {sys.executable}: {error}; "
            "install it with: pip install 'trainhall[train]'",
            missing=True,
        ) from None
    try:
        for name in modules:
            importlib.import_module(name)
    except Exception as error:
        traceback.print_exc()
        raise WarmUpError(f"{name} cannot be imported: {type(error).__name__}: {error}") from None


def num_threads() -> int:
    """Count the threads of this process; 1 where the system does not know."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 1


def serve(link: socket.socket) -> None:
    """Fork what is asked for until the other side closes."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    pending = b""
    while True:
        ready, _, _ = select.select([link.fileno(), reader], [], [])
        if reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)
            _reap()
        if link.fileno() not in ready:
            continue
        data = link.recv(65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            try:
                _answer(link, {"pid": _fork(_request(line))})
            except (ValueError, RecursionError, OSError) as error:
                _answer(link, {"error": f"{type(error).__name__}: {error}"})


def _request(line: bytes) -> tuple[str, list[str]]:
    """Read the target and the arguments of a request.

    Raises:
        ValueError: it is none.
    """
    match json.loads(line):
        case {"target": str(target), "arguments": list(arguments)}:
            return target, [str(argument) for argument in arguments]
        case other:
            text = repr(other)
            shown = text if len(text) <= 80 else text[:79] + "…"
            raise ValueError(f"expected an object with a target and a list of arguments: {shown}")


def _fork(request: tuple[str, list[str]]) -> int:
    target, arguments = request
    module, _, function = target.partition(":")
    pid = os.fork()
    if pid:
        return pid
    code = EXIT_CRASHED
    try:
        _become_new()
        code = int(getattr(importlib.import_module(module), function)(*arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become_new() -> None:
    """Leave everything of the parent behind but its imported modules."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    close_files()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    os.chdir("/")
    reseed()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(link: socket.socket, message: dict[str, Any]) -> None:
    # The agent may be gone; then the next read ends this process.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
