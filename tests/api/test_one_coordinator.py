"""One data folder, and one database, has one coordinator at a time."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from support.cluster.agent_process import until
from support.cluster.coordinator_process import coordinator, url_of
from support.waiting import PATIENCE

from trainhall.api import app as app_module
from trainhall.api import startup
from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.api.startup import StartupError
from trainhall.cluster.coordinator import Coordinator
from trainhall.db import lease
from trainhall.db.database import Database
from trainhall.db.lease import CoordinatorLease, Lease


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    db = Database(url)
    try:
        yield db
    finally:
        await db.close()


async def refusal(app: FastAPI) -> str:
    """What an application says that does not start."""
    with pytest.raises(StartupError) as caught:
        async with app.router.lifespan_context(app):
            pass
    return str(caught.value)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator waits for another to end, and sees that it is not the only one, in no time."""
    monkeypatch.setattr(startup, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)


@pytest.mark.usefixtures("hasty")
async def test_second_coordinator_is_refused_before_any_change(
    make_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    first, second = make_app(), make_app()
    async with first.router.lifespan_context(first):
        message = await refusal(second)
        which = f"another coordinator uses {tmp_path / 'data'}; stop it, or give this one its"
        assert message.startswith(which)
        assert "--data-dir" in message
    # An orderly end frees it.
    third = make_app()
    async with third.router.lifespan_context(third):
        pass


@pytest.mark.usefixtures("hasty")
async def test_second_coordinator_is_refused_on_another_folder(
    make_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    first, second = make_app(), make_app("other")
    async with first.router.lifespan_context(first):
        assert re.fullmatch(
            rf"another coordinator uses the database \(process {os.getpid()} on .*, data in "
            rf"{tmp_path / 'data'}\); stop it, or give this one its own --database-url",
            await refusal(second),
        )
    async with second.router.lifespan_context(second):
        pass


@pytest.mark.usefixtures("hasty")
async def test_copied_data_folder_takes_over_the_database(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(app_module, "end_process", lambda name, _: ended.append(name))
    app = make_app()
    async with app.router.lifespan_context(app):
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        copied = make_app("copy")
        async with copied.router.lifespan_context(copied):
            await until("the first one to end", lambda: ended)
    assert ended == ["lease"]
    assert app.state.failed


@pytest.mark.usefixtures("hasty")
async def test_second_coordinator_is_refused_before_migrations(
    tmp_path: Path, empty_database_url: str
) -> None:
    first, newer = (
        create_app(Settings(data_dir=tmp_path / folder, database_url=empty_database_url))
        for folder in ("data", "other")
    )
    async with first.router.lifespan_context(first):
        db: Database = first.state.coordinator.db
        async with db.transaction() as session:
            await session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        assert "another coordinator uses the database" in await refusal(newer)
        async with db.session() as session:
            revision = await session.scalar(text("SELECT version_num FROM alembic_version"))
        assert revision == "0001"


async def test_unwritable_database_is_reported(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    async with opened(database_url) as db:
        assert await Lease(db, "another", "another host").take(0, lambda: False) is None

    @asynccontextmanager
    async def away(self: Database) -> AsyncIterator[AsyncSession]:
        raise OperationalError(None, None, OSError("the disk is full"))
        yield

    monkeypatch.setattr(Database, "transaction", away)
    app = make_app()
    with pytest.raises(StartupError, match=r"^the database .* cannot be used: the disk is full$"):
        async with app.router.lifespan_context(app):
            pass


@pytest.mark.parametrize("late", [False, True])
async def test_slow_coordinator_keeps_the_lease(
    make_app: Callable[..., FastAPI],
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
    late: bool,
) -> None:
    """It may still write."""

    in_time = Coordinator.stop

    async def stop(self: Coordinator) -> None:
        await in_time(self)
        await asyncio.Event().wait()

    if late:
        monkeypatch.setattr(app_module, "STOP_SECONDS", 0.5)
        monkeypatch.setattr(Coordinator, "stop", stop)
    app = make_app()
    with pytest.raises(TimeoutError) if late else nullcontext():
        async with app.router.lifespan_context(app):
            pass
    assert [task for task in asyncio.all_tasks() if task.get_name() == "lease"] == []
    async with opened(database_url) as db, db.session() as session:
        assert len((await session.scalars(select(CoordinatorLease))).all()) == late


async def test_failed_start_leaves_no_lease(
    make_app: Callable[..., FastAPI], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Database] = []
    close = Database.close

    async def start(self: Coordinator) -> None:
        raise RuntimeError("no start")

    async def noted(self: Database) -> None:
        await close(self)
        closed.append(self)

    monkeypatch.setattr(Coordinator, "start", start)
    monkeypatch.setattr(Database, "close", noted)
    app = make_app()
    with pytest.raises(RuntimeError, match="no start"):
        async with app.router.lifespan_context(app):
            pass
    assert len(closed) == 1
    assert [task for task in asyncio.all_tasks() if task.get_name() == "lease"] == []


async def test_ending_coordinator_is_waited_for(make_app: Callable[..., FastAPI]) -> None:
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


@pytest.mark.processes
def test_processes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with coordinator(tmp_path, lock_seconds=1.0) as first:
        url = url_of(first)
        with coordinator(tmp_path, lock_seconds=1.0) as second:
            output, errors = second.communicate(timeout=60)
        assert (second.returncode, output) == (1, "")
        waits, message = errors.splitlines()
        assert "waiting_for_other_coordinator" in waits
        assert message == (
            f"trainhall: the coordinator could not start: another coordinator uses {folder}; stop "
            "it, or give this one its own --data-dir"
        )
        assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        with coordinator(tmp_path, lock_seconds=3600.0) as waiting:
            assert waiting.stderr is not None
            assert "waiting_for_other_coordinator" in waiting.stderr.readline()
            waiting.send_signal(signal.SIGTERM)
            assert waiting.wait(PATIENCE) == 1, "it ends though nothing has freed the lock"
        os.kill(first.pid, signal.SIGKILL)
        first.wait(PATIENCE)
        # The kernel has freed it: the next one waits for nothing.
        with coordinator(tmp_path, lock_seconds=0.0) as third:
            assert httpx.get(f"{url_of(third)}/readyz", trust_env=False).status_code == 200
