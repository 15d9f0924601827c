"""The files of a job's earlier attempts, put back before its ranks start.

    <data-dir>/outputs/<job>/<sha256>       kept of an attempt that ended on this host

What an earlier attempt on this host has left is not fetched again, if it still has its hash.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, UnavailableError
from trainhall.cluster.agent.os_support.accounts import Owner, reached
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.waiting import end_tasks
from trainhall.cluster.wire.output_names import OutputNameError, path_of
from trainhall.cluster.wire.outputs import Stored, StoredFile
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)
T = TypeVar("T")

KEPT_BYTES = 8 * 2**30
"""Most bytes that are kept of ended attempts; those of the job that ended last go last."""
KEPT_SECONDS = 7 * 24 * 3600.0
FILES_AT_ONCE = 4
TRIES = 3
"""Number of times that a damaged file is fetched."""
RETRY_LIMIT_SECONDS = 10.0


class OutputUnavailableError(Exception):
    """A file of an earlier attempt is not available; the message says why."""


class Fetching(Protocol):
    async def stored_outputs(self, job_id: str, attempt: int, rank: int) -> Stored: ...

    async def get_output(self, job_id: str, sha256: str, to: Path) -> tuple[int, str]: ...


class KeptOutputs:
    """Contents of ended attempts on this host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(
        self, job_id: str, contents: Mapping[str, Sequence[Path]], owner: Owner | None = None
    ) -> None:
        """Move files here by the hash of their contents, and evict what is too much.

        What cannot be moved is left where it is: it will be fetched.

        Args:
            owner: whose files they are; None: this process's.
        """
        for sha256, paths in contents.items():
            with contextlib.suppress(OSError):
                folder = self._folder / job_id
                folder.mkdir(parents=True, exist_ok=True)
                _move(paths[0], folder / sha256, owner)
                os.utime(folder)
        self.evict()

    def evict(self) -> None:
        """Remove what is old, and what is too much."""
        left, oldest = KEPT_BYTES, time.time() - KEPT_SECONDS
        jobs = [(p.stat().st_mtime, p) for p in self._folder.glob("*")]
        for used_at, job in sorted(jobs, reverse=True):
            left -= sum(p.lstat().st_size for p in job.glob("*"))
            if left < 0 or used_at < oldest:
                shutil.rmtree(job, ignore_errors=True)

    def take(self, job_id: str, sha256: str, to: Path, *, last: bool) -> bool:
        """Put a content where it is needed, if it is here and whole.

        Args:
            last: it is not needed again.
        """
        kept = self._folder / job_id / sha256
        try:
            with kept.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError:
            return False
        if found != sha256:
            kept.unlink(missing_ok=True)
            return False
        if last:
            kept.rename(to)
        else:
            shutil.copyfile(kept, to)
        return True


def _move(path: Path, to: Path, owner: Owner | None) -> None:
    """Move a file that is the owner's alone.

    Raises:
        OSError: it is not (EPERM), or is there no more.
    """
    # Other processes of that user may put links into the folder meanwhile.
    with contextlib.nullcontext(path.parent) if owner is None else reached(path.parent) as folder:
        (folder / path.name).rename(to)
    found = to.lstat()
    is_owners = owner is None or (found.st_uid == owner.uid and stat.S_ISREG(found.st_mode))
    # With another name it may be a file outside of the folder: the next attempt would get that.
    if not is_owners or found.st_nlink > 1:
        to.unlink()
        raise PermissionError(errno.EPERM, "not a file of the job's alone", path)


async def restore(
    api: Fetching,
    kept: KeptOutputs,
    job_id: str,
    attempt: int,
    rank: int,
    folder: Path,
) -> None:
    """Put the files of a job into a folder in which nothing runs yet.

    Args:
        rank: the lowest one of this host: of a name that several hosts have it gets its own.

    Raises:
        OutputUnavailableError: one is not available.
        OSError: the disk is full, say.
    """
    try:
        stored = await _retry(partial(api.stored_outputs, job_id, attempt, rank), job_id)
    except RefusedError as error:
        raise OutputUnavailableError(error.detail) from None
    uses = Counter(file.sha256 for file in stored.files)
    scratch = folder.with_name(f".fetch-{folder.name}")
    turns = asyncio.Semaphore(FILES_AT_ONCE)
    locks = {sha256: asyncio.Lock() for sha256 in uses}

    async def put(number: int, file: StoredFile) -> None:
        async with turns, locks[file.sha256]:
            target = folder / os.fsdecode(path_of(file.path))
            if await asyncio.to_thread(_is_there, target, file):
                uses[file.sha256] -= 1
                return
            part = scratch / str(number)
            last = uses[file.sha256] == 1
            take = partial(kept.take, job_id, file.sha256, part, last=last)
            if not await asyncio.to_thread(take):
                await _fetch(api, job_id, file, part)
            await threads.finish(_place, part, target, file)
            uses[file.sha256] -= 1

    puts: list[asyncio.Future[None]] = []
    try:
        if stored.files:
            await asyncio.to_thread(scratch.mkdir, parents=True)
        puts = [asyncio.ensure_future(put(n, file)) for n, file in enumerate(stored.files)]
        await asyncio.gather(*puts)
    except OutputNameError as error:
        raise OutputUnavailableError(f"a name of the coordinator's: {error}") from None
    finally:
        await end_tasks(puts)
        await threads.finish(partial(shutil.rmtree, scratch, ignore_errors=True))
    if stored.files:
        logger.info("outputs_restored", job=job_id, files=len(stored.files))


def _is_there(target: Path, file: StoredFile) -> bool:
    """Return whether the code has a file with this content under this name."""
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.size:
        return False
    with target.open("rb") as opened:
        is_same = hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    if is_same:
        _set_time(target, file)
    return is_same


def _place(part: Path, target: Path, file: StoredFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part.chmod(0o644)
    _set_time(part, file)
    part.replace(target)


def _set_time(path: Path, file: StoredFile) -> None:
    """Give a file the stored time, by which the next collection finds it unchanged."""
    micros = round(file.modified_at.timestamp() * 1_000_000)
    os.utime(path, ns=(micros * 1000, micros * 1000))


async def _retry(ask: Callable[[], Awaitable[T]], job_id: str) -> T:
    """Retry until the coordinator, which may be away for long, answers."""
    backoff = Backoff(0.2, RETRY_LIMIT_SECONDS)
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            logger.info("outputs_wait", job=job_id, error=error)
        await asyncio.sleep(backoff.next())


async def _fetch(api: Fetching, job_id: str, file: StoredFile, to: Path) -> None:
    for _ in range(TRIES):
        try:
            _, found = await _retry(partial(api.get_output, job_id, file.sha256, to), job_id)
        except RefusedError as error:
            raise OutputUnavailableError(f"{file.path}: {error.detail}") from None
        if found == file.sha256:
            return
        logger.warning("output_damaged", job=job_id, path=file.path, action="fetch again")
    raise OutputUnavailableError(f"{file.path} arrived damaged {TRIES} times")
