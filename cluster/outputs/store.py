"""The bytes of the files that jobs write, each content once per job and under its SHA-256.

    <data folder>/outputs/<job>/<sha256>         whole, verified, made durable
    <data folder>/outputs/<job>/<sha256>.part    the beginning of one that is being received

A name is given to a content by a row of the table `outputs`, never by a file here. So a content
that no row names is nobody's, and is removed some time after it came.
"""

import asyncio
import contextlib
import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainhall.cluster.errors import ConflictError, DamagedError, NotFoundError, explain_full_disk
from trainhall.cluster.wire.received_file import ReceivedFile
from trainhall.training.checkpoint.format.draft import fsync_folder, make_durable_folder
from trainhall.training.spec.job import SHA256

_JOB_ID = re.compile(r"[0-9a-z]{1,32}")
_PART = ".part"
_SYNCS_AT_ONCE = 8
_REMEDY = "hosts keep the files of their jobs and retry the upload until there is space"
_REMEDY_OF_RUNS = "free some, and log the artifact again"
MAX_RESERVE_BYTES = 256 * 2**20
RESERVE_SHARE = 1 / 8
"""Files of jobs leave so much of the disk free, and at most `MAX_RESERVE_BYTES`: where the database
has no room, no job starts, ends or reports anything, nor says why."""
_BETWEEN_CHECKS = 2**20


class OutputStore:
    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "outputs"
        self._receiving: dict[tuple[str, str], asyncio.Lock] = {}

    async def received(self, job_id: str, hashes: Iterable[str]) -> list[int | None]:
        """Return how many bytes of each content came so far; None: it is here whole. It counts as
        just received: no sweep removes it before its row is there."""
        targets = [self._path(job_id, sha256) for sha256 in hashes]
        return await asyncio.to_thread(lambda: [self._received(target) for target in targets])

    async def put(
        self,
        job_id: str,
        sha256: str,
        chunks: AsyncIterator[bytes],
        *,
        size: int,
        offset: int = 0,
    ) -> None:
        """Receive a content from `offset` on. What comes before a connection breaks is kept.

        Raises:
            ConflictError: `offset` is not where the content is to be continued.
            DamagedError: what came is not what `size` and `sha256` say; all of it is gone again.
            StorageFullError: the disk is full; what came before is kept.
        """
        target = self._path(job_id, sha256)
        lock = self._receiving.setdefault((job_id, sha256), asyncio.Lock())
        try:
            async with lock:
                with explain_full_disk(_REMEDY):
                    await self._put(target, sha256, chunks, size, offset)
        finally:
            if not lock.locked():
                self._receiving.pop((job_id, sha256), None)

    async def _put(
        self, target: Path, sha256: str, chunks: AsyncIterator[bytes], size: int, offset: int
    ) -> None:
        found = await asyncio.to_thread(self._received, target)
        if found is None:
            # Another host has sent the same meanwhile. Senders do not read before they sent all.
            async for _ in chunks:
                pass
            return
        part = target.with_name(target.name + _PART)
        if offset == 0 and found:
            await asyncio.to_thread(part.unlink, missing_ok=True)
        elif offset != found:
            raise ConflictError(f"{found} bytes of it are here; continue from there")
        if not await asyncio.to_thread(target.parent.is_dir):
            await asyncio.to_thread(make_durable_folder, target.parent)
        writer = ReceivedFile(part, continued=True)
        try:
            await asyncio.to_thread(writer.open)
            received = _while_room(_limited(chunks, size - offset), target.parent)
            await writer.receive(received, size, target, sha256)
            await asyncio.to_thread(fsync_folder, target.parent)
        except DamagedError:
            await asyncio.to_thread(writer.discard)
            raise
        finally:
            await asyncio.to_thread(writer.close)

    async def put_small(self, job_id: str, contents: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Store whole contents, given by SHA-256 and bytes.

        Returns:
            Whether each is stored: not if its bytes have another hash.

        Raises:
            StorageFullError: the disk is full; some may be stored, and it may be called again.
        """
        items = [(self._path(job_id, sha256), data) for sha256, data in contents]
        with explain_full_disk(_REMEDY):
            return await asyncio.to_thread(_store_all, self._job(job_id), items)

    async def put_unknown(
        self, job_id: str, chunks: AsyncIterator[bytes], limit: int
    ) -> tuple[str, int]:
        """Receive a content whose hash is not known before; return its SHA-256 and size.

        Raises:
            StorageFullError: the disk is full.
            TooLargeError: it is larger than `limit` bytes.
        """
        folder = self._job(job_id)
        if not await asyncio.to_thread(folder.is_dir):
            await asyncio.to_thread(make_durable_folder, folder)
        part = folder / f"{secrets.token_hex(16)}{_PART}"
        writer = ReceivedFile(part)
        try:
            with explain_full_disk(_REMEDY_OF_RUNS):
                await writer.receive(_while_room(chunks, folder), limit, part, None)
                target = folder / writer.sha256
                await asyncio.to_thread(part.replace, target)
                await asyncio.to_thread(fsync_folder, folder)
        except BaseException:
            await asyncio.to_thread(part.unlink, missing_ok=True)
            raise
        finally:
            await asyncio.to_thread(writer.close)
        return writer.sha256, writer.size

    def file(self, job_id: str, sha256: str) -> Path:
        """Return the path of a content.

        Raises:
            NotFoundError: it is not here.
        """
        path = self._path(job_id, sha256)
        if not path.is_file():
            raise NotFoundError("content of an output", f"{sha256} of job {job_id}")
        return path

    def place(self, job_id: str, sha256: str) -> Path:
        """Return the path that a content has if it is here."""
        return self._path(job_id, sha256)

    async def missing(self, job_id: str, hashes: Iterable[str]) -> list[str]:
        """Return those of the contents that are not here."""
        paths = {sha256: self._path(job_id, sha256) for sha256 in hashes}
        return await asyncio.to_thread(
            lambda: [h for h, path in paths.items() if not path.is_file()]
        )

    async def remove(self, job_id: str, hashes: Iterable[str]) -> None:
        """Remove contents that no row names any more."""
        paths = [self._path(job_id, sha256) for sha256 in hashes]

        def unlink() -> None:
            for path in paths:
                with contextlib.suppress(OSError):  # the sweep tries again
                    path.unlink(missing_ok=True)

        if paths:
            await asyncio.to_thread(unlink)

    async def remove_job(self, job_id: str) -> None:
        """Remove all contents of a job.

        Raises:
            OSError: the disk does not let them go; it may be called again.
        """
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._job(job_id))

    async def jobs(self) -> list[str]:
        """Return the ids of the jobs that have contents here, or parts of them."""
        return await asyncio.to_thread(lambda: [p.name for p in self._folder.glob("*")])

    async def sweep(
        self, job_id: str, named: Collection[str], older_than_seconds: float
    ) -> list[str]:
        """Remove the contents of a job that are not `named`, and parts that were not continued, if
        they are so old; return their names."""
        return await asyncio.to_thread(self._sweep, job_id, named, older_than_seconds)

    def _sweep(self, job_id: str, named: Collection[str], older_than_seconds: float) -> list[str]:
        removed = []
        oldest = time.time() - older_than_seconds  # file times are the host's, not the port's
        for path in self._job(job_id).glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.name not in named and path.stat().st_mtime < oldest:
                    path.unlink()
                    removed.append(path.name)
        return removed

    def _received(self, target: Path) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(target)
            return None
        try:
            return target.with_name(target.name + _PART).stat().st_size
        except FileNotFoundError:
            return 0

    def _job(self, job_id: str) -> Path:
        if not _JOB_ID.fullmatch(job_id):
            raise NotFoundError("job", job_id[:80])
        return self._folder / job_id

    def _path(self, job_id: str, sha256: str) -> Path:
        if not SHA256.fullmatch(sha256):
            raise NotFoundError("content of an output", sha256[:80])
        return self._job(job_id) / sha256


def _store_all(folder: Path, items: Sequence[tuple[Path, bytes]]) -> list[bool]:
    make_durable_folder(folder)
    _check_room(folder)
    try:
        # File systems write what several threads sync at one time together.
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            return list(pool.map(_store, items))
    finally:
        # Also of those before an error: the next request finds them here.
        fsync_folder(folder)


def _store(item: tuple[Path, bytes]) -> bool:
    target, data = item
    # The name that `put` continues is not used: it may receive the same at this time.
    writer = ReceivedFile(target.with_name(f"{secrets.token_hex(16)}{_PART}"))
    try:
        writer.finish([data], target, target.name)
    except DamagedError:
        return False
    finally:
        writer.discard()
    return True


async def _while_room(chunks: AsyncIterator[bytes], folder: Path) -> AsyncIterator[bytes]:
    """Yield what comes while the folder's disk has room for it.

    Raises:
        OSError: it has none (ENOSPC).
    """
    unchecked = _BETWEEN_CHECKS
    async for chunk in chunks:
        unchecked += len(chunk)
        if unchecked >= _BETWEEN_CHECKS:
            await asyncio.to_thread(_check_room, folder)
            unchecked = 0
        yield chunk


def _check_room(folder: Path) -> None:
    """Raise an OSError (ENOSPC) if the rest of the folder's disk is for the database."""
    disk = shutil.disk_usage(folder)
    if disk.free < min(MAX_RESERVE_BYTES, disk.total * RESERVE_SHARE):
        raise OSError(errno.ENOSPC, "the rest is for the database", folder)


async def _limited(chunks: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield what comes, which is exactly `size` bytes.

    Raises:
        DamagedError: it is not.
    """
    left = size
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left:
        raise DamagedError(f"{size - left} bytes came of the {size} that were announced")
