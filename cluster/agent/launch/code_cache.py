"""The code of jobs on this host: fetched and unpacked once, copied for every attempt.

    <data-dir>/code/<name>/         unpacked; no process runs in it

An attempt gets a copy of its own, within its folder, and may write there: two attempts of the same
code never see each other's files, and both are gone with their attempts.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, UnavailableError
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.wire.code_archive import ArchiveError, unpack
from trainhall.training.event_log import EventLogger
from trainhall.training.spec.job import SHA256

logger = EventLogger(__name__)

CACHE_BYTES = 2 * 1024**3
"""Size limit of all unpacked code; the least recently used goes first."""
RETRY_LIMIT_SECONDS = 10.0
TRIES = 3
"""Number of times that damaged code is fetched."""


class CodeUnavailableError(Exception):
    """The code is unavailable; the message says why."""


class Fetching(Protocol):
    async def get_code(self, sha256: str, to: Path) -> tuple[int, str]: ...


class CodeCache:
    def __init__(self, folder: Path, api: Fetching, limit: int = CACHE_BYTES) -> None:
        self._folder = folder
        self._api = api
        self._limit = limit
        self._fetching: dict[str, asyncio.Lock] = {}
        self._copying = asyncio.Lock()
        """Nothing is removed while it is copied."""
        for left in [*folder.glob("*.tar"), *folder.glob(".*.part")]:
            _remove(left)  # of an agent that was killed

    async def copy(
        self, name: str, to: Path, fetch: Callable[[Path], Awaitable[None]] | None = None
    ) -> None:
        """Put a copy of the code at `to`, which does not exist yet.

        Once this returns, or is cancelled, nothing is written there any more.

        Args:
            name: 64 hexadecimal digits; of an upload its SHA-256.
            fetch: puts code that is not here yet at the path that it gets; None: it is an upload.

        Raises:
            CodeUnavailableError: the coordinator does not have it, or it cannot be unpacked.
            OSError: there is no room for it.
        """
        unpacked = self._folder / name
        while True:
            # The second caller finds what the first one fetched.
            async with self._fetching.setdefault(name, asyncio.Lock()):
                if not await asyncio.to_thread(unpacked.is_dir):
                    await (fetch or partial(self._fetch, name))(unpacked)
            async with self._copying:
                if not await asyncio.to_thread(unpacked.is_dir):
                    continue
                await asyncio.to_thread(os.utime, unpacked)
                await threads.finish(_copy, unpacked, to)
                await threads.finish(self._evict, unpacked)
                return

    async def _fetch(self, sha256: str, unpacked: Path) -> None:
        archive = self._folder / f"{sha256}.tar"
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        try:
            await self._download(sha256, archive)
            await threads.finish(unpack, archive, unpacked)
        except RefusedError as error:
            raise CodeUnavailableError(f"the coordinator refused it: {error.detail}") from None
        except ArchiveError as error:
            raise CodeUnavailableError(f"the archive cannot be used: {error}") from None
        except OSError:
            # It appears whole or not at all, so one that is there is as good.
            if not await asyncio.to_thread(unpacked.is_dir):
                raise
        finally:
            await threads.finish(partial(archive.unlink, missing_ok=True))

    async def _download(self, sha256: str, archive: Path) -> None:
        backoff, tries = Backoff(0.2, RETRY_LIMIT_SECONDS), 0
        while True:
            try:
                _, found = await self._api.get_code(sha256, archive)
                if found == sha256:
                    return
                tries += 1
                if tries == TRIES:
                    raise CodeUnavailableError(f"the download has SHA-256 {found}, not {sha256}")
                logger.warning("code_damaged", sha256=sha256, action="fetch again")
            except UnavailableError as error:
                logger.info("code_transfer_waits", sha256=sha256, error=error)
            await asyncio.sleep(backoff.next())

    def _evict(self, keep: Path) -> None:
        """Remove what was used least lately until the rest is within the limit."""
        # What else lies there is on its way to be one of these, or gone at any moment.
        unpacked = [p for p in self._folder.iterdir() if SHA256.fullmatch(p.name)]
        found = [(p.stat().st_mtime, p) for p in unpacked]
        left = self._limit
        for _, path in sorted(found, reverse=True):
            left -= _size(path)
            if left < 0 and path != keep:
                _remove(path)


def _copy(unpacked: Path, to: Path) -> None:
    try:
        shutil.copytree(unpacked, to, symlinks=True)
    except shutil.Error as error:
        # It lists every file that could not be written; the first says why.
        first: tuple[str, str, str] = error.args[0][0]
        others = len(error.args[0]) - 1
        raise OSError(f"{first[2]} (and {others} more files)" if others else first[2]) from None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(p.lstat().st_size for p in path.rglob("*"))
