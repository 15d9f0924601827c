"""A file on its way in: hashed as it is written, durable before it gets its name."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from io import FileIO
from pathlib import Path

from trainhall.cluster.errors import DamagedError, TooLargeError

_BLOCK = 1024 * 1024


class ReceivedFile:
    """A temporary file that takes the name of a target once all of it is there.

    Args:
        continued: the file may be there, and what comes follows what it has.
    """

    def __init__(self, path: Path, *, continued: bool = False) -> None:
        self._path = path
        self._continued = continued
        self._file: FileIO | None = None
        self._digest = hashlib.sha256()
        self.size = 0
        self.is_done = False

    @property
    def sha256(self) -> str:
        """Return the hash of what came so far."""
        return self._digest.hexdigest()

    async def receive(
        self, chunks: AsyncIterator[bytes], limit: int, target: Path, sha256: str | None
    ) -> None:
        """Write what comes, and give it its name.

        Raises:
            TooLargeError: it is larger than `limit` bytes.
            FileExistsError, NotADirectoryError, IsADirectoryError, DamagedError: as `finish`.
        """
        pending: list[bytes] = []
        size = 0
        async for chunk in chunks:
            pending.append(chunk)
            size += len(chunk)
            if self.size + size > limit:
                raise TooLargeError(limit)
            if size >= _BLOCK:
                await asyncio.to_thread(self._write_all, pending)
                pending, size = [], 0
        # One hop to a thread for all of a small file.
        await asyncio.to_thread(self.finish, pending, target, sha256)

    def open(self) -> None:
        """Open the file, and read what it has.

        Raises:
            FileExistsError, NotADirectoryError: it exists, or a part of its path is a file.
        """
        if self._file is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b" if self._continued else "xb", buffering=0)
        if self._continued:
            self._file.seek(0)
            while block := self._file.read(_BLOCK):
                self._digest.update(block)
                self.size += len(block)

    def write(self, data: bytes) -> None:
        """Write; raise as `open`."""
        self.open()
        assert self._file is not None
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._digest.update(data)
        self.size += len(data)

    def _write_all(self, chunks: Sequence[bytes]) -> None:
        # As they came: to put them together would copy every byte of a large file once more.
        for chunk in chunks:
            self.write(chunk)

    def finish(self, last: Sequence[bytes], target: Path, sha256: str | None) -> None:
        """Write the last of it and give it its name.

        Raises:
            FileExistsError, NotADirectoryError: a part of the path is a file.
            IsADirectoryError: the target is a folder.
            DamagedError: what came is not what `sha256` says.
        """
        self.open()
        self._write_all(last)
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._file.close()
        found = self.sha256
        if sha256 is not None and found != sha256.lower():
            raise DamagedError(
                f"{target.name}: its SHA-256 is {found}, not {sha256}; send it again"
            )
        self._path.replace(target)
        self.is_done = True

    def close(self) -> None:
        """Keep what came, to be continued."""
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Remove the file if it was not renamed."""
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)
