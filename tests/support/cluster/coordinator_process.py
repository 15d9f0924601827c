"""A coordinator as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from trainhall.api import startup
from trainhall.api.server import serve
startup.LOCK_SECONDS = float(sys.argv[5])
sys.exit(serve(host=sys.argv[1], port=int(sys.argv[2]), data_dir=Path(sys.argv[3]),
               database_url=sys.argv[4] or None))
"""


@contextmanager
def coordinator(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    database: str = "",
    lock_seconds: float = 10.0,
) -> Iterator[subprocess.Popen[str]]:
    """It keeps its data in `folder`/data; it is killed where it has not ended.

    Args:
        lock_seconds: how long it waits for another one on the same data.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, host, str(port), str(folder / "data"), database,
         str(lock_seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    """Where it is, once it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Trainhall is at http://127.0.0.1:"), line
    return line.split()[-1]
