"""One data folder has one coordinator at a time."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from support.coordinator_process import coordinator, url_of

from trainhall.api import startup
from trainhall.api.startup import StartupError


async def test_a_second_one_is_refused_before_it_touches_anything(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(startup, "LOCK_SECONDS", 0.2)
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


def test_processes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with coordinator(tmp_path, lock_seconds=1.0) as first:
        url = url_of(first)
        with coordinator(tmp_path, lock_seconds=1.0) as second:
            output, errors = second.communicate(timeout=60)
        assert (second.returncode, output) == (1, "")
        waits, told = errors.splitlines()
        assert "waiting for the end of another coordinator" in waits
        assert told == (
            f"trainhall: the coordinator could not start: another coordinator uses {folder}; stop "
            "it, or give this one a --data-dir of its own"
        )
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        with coordinator(tmp_path, lock_seconds=3600.0) as waiting:
            assert waiting.stderr is not None
            assert "waiting for the end of another" in waiting.stderr.readline()
            waiting.send_signal(signal.SIGTERM)
            assert waiting.wait(20) == 1, "it ends though nothing has freed the lock"
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
        # The kernel has freed it: the next one waits for nothing.
        with coordinator(tmp_path, lock_seconds=0.0) as third:
            assert httpx.get(f"{url_of(third)}/readyz", trust_env=False).status_code == 200
