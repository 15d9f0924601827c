"""A coordinator as a process of its own."""

import os
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from support.forking import forks

from trainhall.api import startup
from trainhall.api.server import serve


class CoordinatorProcess:
    """To be used as a `subprocess.Popen` with pipes for its output, as text."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        reader, writer = os.pipe()
        self.stdout: IO[str] = os.fdopen(reader)
        reader, other = os.pipe()
        self.stderr: IO[str] = os.fdopen(reader)
        with open(os.devnull) as nothing:
            self._fork = forks.fork(
                "support.cluster.coordinator_process:main", arguments,
                files=[nothing, writer, other], cwd=folder,
            )  # fmt: skip
        os.close(writer)
        os.close(other)
        self.pid = self._fork.pid
        self.send_signal = self._fork.send_signal
        self.kill = self._fork.kill
        self.wait = self._fork.wait

    @property
    def returncode(self) -> Any:
        return self._fork.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        # It writes less than a pipe holds.
        return self.stdout.read(), self.stderr.read()

    def close(self) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()


@contextmanager
def coordinator(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    database: str = "",
    lock_seconds: float = 10.0,
    open_files: int = 0,
) -> Iterator[CoordinatorProcess]:
    """It keeps its data in `folder`/data, and asks for no login; it is killed where it has not
    ended.

    Args:
        lock_seconds: how long it waits for another one on the same data.
        open_files: how many it may have open; 0 leaves it to this process's own limit.
    """
    arguments = [host, port, folder / "data", database, lock_seconds, open_files]
    process = CoordinatorProcess(folder, [str(each) for each in arguments])
    try:
        yield process
    finally:
        process.close()


def main() -> int:
    host, port, data, database, lock_seconds, open_files = sys.argv[1:]
    if limit := int(open_files):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit // 2, limit))
    warnings.simplefilter("error", RuntimeWarning)
    os.environ.setdefault("TRAINHALL_AUTH", "none")
    startup.LOCK_SECONDS = float(lock_seconds)
    return serve(host=host, port=int(port), data_dir=Path(data), database_url=database or None)


def url_of(process: CoordinatorProcess) -> str:
    """Where it is, once it listens."""
    line = process.stdout.readline()
    assert line.startswith(("Trainhall is at http://127.0.0.1:", "Trainhall is at https://127.")), (
        line
    )
    return line.split()[-1]
