"""One data folder has one coordinator at a time."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from trainhall.api import app as application
from trainhall.api.app import StartupError

PROGRAM = """
import sys
from pathlib import Path
from trainhall.api import app
from trainhall.api.server import serve
app.LOCK_SECONDS = float(sys.argv[2])
sys.exit(serve(host="127.0.0.1", port=0, data_dir=Path(sys.argv[1])))
"""


@contextmanager
def server(folder: Path, lock_seconds: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(lock_seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder.parent,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().split()[-1]


async def test_a_second_one_is_refused_before_it_touches_anything(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(application, "LOCK_SECONDS", 0.2, raising=False)
    first, second = make_app(), make_app()
    async with first.router.lifespan_context(first):
        with pytest.raises(StartupError) as caught:
            async with second.router.lifespan_context(second):
                pass
        told = f"another coordinator uses {tmp_path / 'data'}; stop it, or give this one a"
        assert str(caught.value).startswith(told)
        assert "--data-dir" in str(caught.value)
    # An orderly end frees it.
    third = make_app()
    async with third.router.lifespan_context(third):
        pass


async def test_one_that_is_about_to_end_is_waited_for(make_app: Callable[..., FastAPI]) -> None:
    first, second = make_app(), make_app()
    started = asyncio.Event()

    async def run_second() -> None:
        async with second.router.lifespan_context(second):
            started.set()

    async with first.router.lifespan_context(first):
        running = asyncio.create_task(run_second())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(started.wait(), 0.3)
        assert not running.done()
    await asyncio.wait_for(running, 20)
    assert started.is_set()


async def test_what_knows_no_locks_is_used_without(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    made = make_app()
    async with made.router.lifespan_context(made):
        pass


def test_processes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with server(folder, 1.0) as first:
        url = url_of(first)
        with server(folder, 1.0) as second:
            output, errors = second.communicate(timeout=60)
        assert (second.returncode, output) == (1, "")
        assert errors == (
            f"trainhall: the coordinator could not start: another coordinator uses {folder}; stop "
            "it, or give this one a --data-dir of its own\n"
        )
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
        # The kernel has freed it: the next one waits for nothing.
        with server(folder, 0.0) as third:
            assert httpx.get(f"{url_of(third)}/readyz", trust_env=False).status_code == 200
