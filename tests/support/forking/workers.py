"""Workers of pytest-xdist, forked from a process that has imported all tests.

Executed, each would import them itself: 6 s of a processor, and 12 s in a fresh checkout, where
pytest compiles them. A worker still collects its tests, which takes a fifth of that.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from execnet import gateway_io
from execnet.gateway_base import Popen2IO
from support.forking import forks
from support.holds import with_tests

from trainhall.training.process.warm_parent import num_threads

_WORKER = "support.forking.workers:worker"


@contextlib.contextmanager
def forked_workers(arguments: Sequence[str]) -> Iterator[None]:
    """Have xdist fork its workers meanwhile.

    Where a test cannot be imported, workers are executed, as xdist does, and say why.

    Args:
        arguments: those of pytest.
    """
    # A thread of OpenBLAS would be lost in the forks.
    env = with_tests() | {"OPENBLAS_NUM_THREADS": "1"}
    module = "support.forking.workers"
    try:
        process, address = forks.start_parent(
            module, arguments, subprocess.PIPE, env=env, session=False
        )
    except forks.CannotForkError:
        yield
        return

    class ForkedIO(gateway_io.Popen2IOMaster):
        def __init__(self, args: list[str], execmodel: Any) -> None:
            its_input, ours_to_write = os.pipe()
            ours_to_read, its_output = os.pipe()
            its_files = [its_input, its_output, 2]
            self.popen = forks.fork(_WORKER, files=its_files, parent=address)
            os.close(its_input)
            os.close(its_output)
            files = os.fdopen(ours_to_write, "wb"), os.fdopen(ours_to_read, "rb")
            Popen2IO.__init__(self, *files, execmodel=execmodel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway_io, "Popen2IOMaster", ForkedIO)
        try:
            yield
        finally:
            forks.end(process)


def worker() -> None:
    """Do what execnet has a Python do that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})


def _import_tests(arguments: Sequence[str]) -> bool:
    """Import what pytest would collect; False if that fails, or leaves a thread behind."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main([*arguments, "--collect-only", "-qq", "-n0"])
    return code == pytest.ExitCode.OK and num_threads() == 1


def main() -> None:
    """Import the tests that pytest is to run, and be forked."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    if not _import_tests(sys.argv[2:]):
        sys.exit(1)
    # Ctrl-C is for pytest and its workers: this process ends with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    forks.be_forked(listener, session=False)


if __name__ == "__main__":
    main()
