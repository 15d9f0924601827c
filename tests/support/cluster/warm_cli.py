"""Commands in processes of their own that are forked from one with the command line imported.

Importing it is most of what a command costs, and some tests run a hundred.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.holds import with_tests

from trainhall.cli.main import main

IMPORTED = (
    "trainhall.cli.base.client",
    "trainhall.cli.spec.specs",
    "trainhall.training.spec.parse",
    "yaml",
)
_REQUEST_BYTES = 1 << 20


class WarmCli:
    """Asks for commands, one after another."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.cluster.warm_cli"],
                stdin=theirs.fileno(), env=with_tests(), start_new_session=True,
            )  # fmt: skip

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        given: str | None = None,
        timeout: float = 90,
    ) -> subprocess.CompletedProcess[str]:
        """`trainhall` with these arguments; `given` is its standard input."""
        request = {"arguments": arguments, "env": dict(env), "cwd": str(cwd)}
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write((given or "").encode())
            files[0].seek(0)
            message = json.dumps(request).encode()
            socket.send_fds(self._link, [message], [file.fileno() for file in files])
            pid = int(self._link.recv(_REQUEST_BYTES))
            self._link.settimeout(timeout)
            try:
                code = int(self._link.recv(_REQUEST_BYTES))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            finally:
                self._link.settimeout(None)
            for file in files:
                file.seek(0)
            out, err = (file.read().decode() for file in files[1:])
        return subprocess.CompletedProcess(list(arguments), code, out, err)

    def close(self) -> None:
        self._link.close()
        self._process.wait()


@contextlib.contextmanager
def warm_cli() -> Iterator[WarmCli]:
    cli = WarmCli()
    try:
        yield cli
    finally:
        cli.close()


def _serve(link: socket.socket) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(link, _REQUEST_BYTES, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        link.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        link.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], fds: Sequence[int]) -> None:
    """Be that command, and end."""
    code: Any = 70
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.argv = ["trainhall", *request["arguments"]]
        main()
        code = 0
    except SystemExit as end:
        code = end.code
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
    for name in IMPORTED:
        importlib.import_module(name)
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _serve(asked)
