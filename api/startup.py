"""What a coordinator must have before it starts: its data folder for itself, and its database."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from trainhall.api.settings import Settings
from trainhall.cluster.file_lock import FileLock
from trainhall.db.database import Database, DatabaseUrlError

log = structlog.get_logger(__name__)

LOCK = "coordinator.lock"
LOCK_SECONDS = 10.0
"""How long the coordinator before this one may take to end: its requests, then its own work."""
LOCK_POLL_SECONDS = 0.05


class StartupError(Exception):
    """The coordinator cannot start for a cause outside of it."""


@asynccontextmanager
async def only_one(folder: Path, is_over: Callable[[], bool]) -> AsyncIterator[None]:
    """Hold the data folder: a second coordinator hears no agent and gives every node up.

    One that was asked to end, as when its `up` was killed, is waited for.

    Args:
        is_over: whether this process was asked to end.

    Raises:
        StartupError: the folder can't be used, or another coordinator uses it.
    """
    try:
        lock = FileLock(folder / LOCK)
    except OSError as error:
        raise _unusable(folder, error) from error
    with lock:
        if not lock.taken() and not await _taken_later(lock, folder, is_over):
            raise StartupError(
                f"another coordinator uses {folder}; stop it, or give this one a --data-dir of "
                "its own"
            )
        yield


async def _taken_later(lock: FileLock, folder: Path, is_over: Callable[[], bool]) -> bool:
    log.info("waiting for the end of another coordinator", data_dir=str(folder))
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline and not is_over():
        await asyncio.sleep(LOCK_POLL_SECONDS)
        if lock.taken():
            return True
    return False


async def open_database(settings: Settings) -> Database:
    """The database with today's tables.

    Raises:
        StartupError: its address is none, or it cannot be used.
    """
    try:
        db = Database(settings.database)
    except OSError as error:
        raise _unusable(settings.data_dir, error) from error
    except DatabaseUrlError as error:
        raise StartupError(str(error)) from error
    try:
        await db.migrate()
    except SQLAlchemyError as error:
        await db.close()
        cause = str(getattr(error, "orig", error)).strip().splitlines()
        where = db.url.render_as_string(hide_password=True)
        raise StartupError(
            f"the database {where} cannot be used: {cause[0] if cause else type(error).__name__}"
        ) from error
    return db


def _unusable(folder: Path, error: OSError) -> StartupError:
    return StartupError(f"cannot keep data in {folder}: {error.strerror}")
