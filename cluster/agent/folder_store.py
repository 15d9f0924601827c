"""Folders that a host makes once by their keys, shares among attempts, and removes by least use.

<folder>/
    <key>/          complete; nobody writes to it any more
    <key>.<random>.tmp/   being made, or left by an agent that was killed
    <key>.lock      locked by its maker
"""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from trainhall.cluster.agent import threads
from trainhall.cluster.file_lock import FileLock
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

_LOCK_SECONDS = 0.2
_KEY = re.compile(r"[0-9a-f]{64}")
_PASSABLE = 0o555


class FolderStore:
    """
    Args:
        folder: that holds them.
        in_use: returns the folders of the attempts that are on this host.
        readable: users of jobs are to read them.
        limit: bytes of all together.
    """

    def __init__(
        self,
        folder: Path,
        in_use: Callable[[], Iterable[Path]],
        *,
        readable: bool,
        limit: int,
    ) -> None:
        self._folder = folder
        self._in_use = in_use
        self._readable = readable
        self._limit = limit
        self._building: dict[str, asyncio.Lock] = {}
        self._builds = 0
        self._evicting = asyncio.Lock()
        """Nobody finds a folder that is about to be removed."""
        self._wanted: dict[Path, int] = {}
        """Folders that attempts are about to use."""

    def path(self, key: str) -> Path:
        return self._folder / key

    async def get(self, key: str, build: Callable[[Path], Awaitable[None]]) -> Path:
        """Return the folder of a key, made first if it is not there.

        It stays at least until `release`.

        Args:
            build: makes it in the folder that it is given, which does not exist.

        Raises:
            OSError: there is no room for it.
        """
        found = self.path(key)
        self._wanted[found] = self._wanted.get(found, 0) + 1
        try:
            async with self._building.setdefault(key, asyncio.Lock()):
                if not await self._use(found):
                    await self._build(key, found, build)
        except BaseException:
            self.release(found)
            raise
        return found

    def release(self, path: Path) -> None:
        """Say that an attempt which uses it is known to `in_use` by now, or is no more."""
        self._wanted[path] -= 1
        if not self._wanted[path]:
            del self._wanted[path]

    async def _use(self, found: Path) -> bool:
        async with self._evicting:
            if not await asyncio.to_thread(found.is_dir):
                return False
            await asyncio.to_thread(os.utime, found)
            return True

    async def _build(self, key: str, found: Path, build: Callable[[Path], Awaitable[None]]) -> None:
        await asyncio.to_thread(self._make)
        with await asyncio.to_thread(FileLock, self._folder / f"{key}.lock") as lock:
            while not lock.taken():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(_LOCK_SECONDS)
            if await asyncio.to_thread(found.is_dir):
                return
            # Not the name of before: what a killed agent started may still write there.
            part = self._folder / f"{key}.{secrets.token_hex(4)}.tmp"
            self._builds += 1
            try:
                await build(part)
                await threads.finish(self._seal, part)
                await asyncio.to_thread(part.rename, found)
            finally:
                self._builds -= 1
                if await asyncio.to_thread(part.exists):
                    await threads.finish(remove, part)
        async with self._evicting:
            await threads.finish(self._evict)

    def _make(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711 if self._readable else 0o700)

    def _seal(self, part: Path) -> None:
        """Take away the right to write, so that jobs which share it do not change it."""
        for base, _, files in os.walk(part):
            os.chmod(base, _PASSABLE)
            for name in files if self._readable else ():
                path = os.path.join(base, name)
                mode = os.lstat(path).st_mode
                if not stat.S_ISLNK(mode):
                    # A file may be there for everybody to write, as uv's lock of an environment.
                    wanted = (mode | 0o444 | (0o111 if mode & 0o100 else 0)) & ~0o022
                    if wanted != mode:
                        os.chmod(path, stat.S_IMODE(wanted))

    def clean(self) -> None:
        """Remove what was left unfinished. Call it before any is built."""
        for left in [*self._folder.glob("*.tmp"), *self._folder.glob("*.lock")]:
            remove(left)

    def _evict(self) -> None:
        """Remove what was used least lately until the rest is within the limit."""
        found = [path for path in self._folder.iterdir() if _KEY.fullmatch(path.name)]
        # At once: this is a thread, and the attempts that begin meanwhile are in the event loop's.
        used = {*self._in_use(), *tuple(self._wanted)}
        left = self._limit
        for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True):
            left -= size_of(path)
            if left < 0 and path not in used:
                logger.info("folder_removed", path=path, reason="over the size limit")
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder that may be read-only."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        for base, _, _ in os.walk(path):
            os.chmod(base, 0o700)
    # First out of sight: it is there as a whole, or not at all.
    hidden = path.with_name(f"{path.name.removesuffix('.tmp')}.removed.tmp")
    with contextlib.suppress(OSError):
        path.rename(hidden)
        path = hidden
    shutil.rmtree(path, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, which may change meanwhile; links are not
    followed."""
    size = 0
    for base, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(base, name)).st_size
    return size
