"""Exclusive resources of a starting coordinator: its data folder and its database."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from trainhall.api.settings import Settings
from trainhall.cluster.background_tasks import BackgroundTasks
from trainhall.cluster.file_lock import FileLock
from trainhall.db.database import Database, DatabaseUrlError
from trainhall.db.lease import CoordinatorLease, Lease

log = structlog.get_logger(__name__)

LOCK = "coordinator.lock"
IDENTITY = "coordinator.id"
LOCK_SECONDS = 10.0
"""Time for the previous coordinator to end: its requests, then its own work."""
LOCK_POLL_SECONDS = 0.05


class StartupError(Exception):
    """The coordinator cannot start for a cause outside of it."""


@asynccontextmanager
async def only_one(folder: Path, is_over: Callable[[], bool]) -> AsyncIterator[None]:
    """Hold the data folder: a second coordinator would declare every node lost.

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
                f"another coordinator uses {folder}; stop it, or give this one its own --data-dir"
            )
        yield


async def _taken_later(lock: FileLock, folder: Path, is_over: Callable[[], bool]) -> bool:
    log.info("waiting_for_other_coordinator", data_dir=str(folder))
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline and not is_over():
        await asyncio.sleep(LOCK_POLL_SECONDS)
        if lock.taken():
            return True
    return False


def open_database(settings: Settings) -> Database:
    """Open the database without reading from it.

    Raises:
        StartupError: its address is none, or its file cannot be there.
    """
    try:
        return Database(settings.database)
    except OSError as error:
        raise _unusable(settings.data_dir, error) from error
    except DatabaseUrlError as error:
        raise StartupError(str(error)) from error


@asynccontextmanager
async def sole_use(
    db: Database,
    folder: Path,
    is_over: Callable[[], bool],
    on_fatal: Callable[[str, BaseException | None], None],
) -> AsyncIterator[None]:
    """Keep other coordinators, of other data folders or hosts, from the database.

    Args:
        folder: the data folder, which is held.
        is_over: whether this process was asked to end.
        on_fatal: called should another have taken the database, as it may from one that slept.

    Raises:
        StartupError: the database cannot be used, or another coordinator uses it.
    """
    location = f"process {os.getpid()} on {socket.gethostname()}, data in {folder}"
    lease = Lease(db, identity(folder), location)
    with _explain_database_errors(db):
        # Where there can be a lease it comes first: a newer version, started by mistake, must not
        # change the tables under the one that runs.
        if not await db.has_table(CoordinatorLease.__tablename__):
            await db.migrate()
        other = await lease.take(LOCK_SECONDS, is_over)
    if other is not None:
        raise StartupError(
            f"another coordinator uses the database ({other}); stop it, or give this one its "
            "own --database-url"
        )
    tasks = BackgroundTasks(on_fatal)
    tasks.start("lease", lease.keep())
    try:
        yield
    finally:
        await tasks.stop()
    # Not where something failed: a coordinator that did not end in time may still write.
    await lease.release()


async def migrate(db: Database) -> None:
    """Bring the tables of a database up to date, of which this process has the sole use.

    Raises:
        StartupError: it cannot be used.
    """
    with _explain_database_errors(db):
        await db.migrate()


@contextmanager
def _explain_database_errors(db: Database) -> Iterator[None]:
    """Say in a line why a database cannot be used."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", error)).strip().splitlines()
        where = db.url.render_as_string(hide_password=True)
        raise StartupError(
            f"the database {where} cannot be used: {cause[0] if cause else type(error).__name__}"
        ) from error


def identity(folder: Path) -> str:
    """Return the identity of a held data folder; made at the first call.

    Raises:
        StartupError: the folder can't be used.
    """
    path = folder / IDENTITY
    try:
        with suppress(FileNotFoundError):
            if known := path.read_text().strip():
                return known[:64]
        made = secrets.token_hex(16)
        path.write_text(made)
    except OSError as error:
        raise _unusable(folder, error) from error
    return made


def _unusable(folder: Path, error: OSError) -> StartupError:
    return StartupError(f"cannot keep data in {folder}: {error.strerror}")
