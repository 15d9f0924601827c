"""A download into a file: continued where it broke off, verified by its hash."""

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.data.programs import (
    BUFFER_BYTES,
    DataFailedError,
    ProgramError,
    Programs,
)
from trainhall.cluster.agent.data.unpack import RESERVE_BYTES
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.backoff import Backoff
from trainhall.training.common.units import size_text
from trainhall.training.event_log import EventLogger
from trainhall.training.link.failure import Cause
from trainhall.training.spec.world.data import DataSpec

logger = EventLogger(__name__)

TRIES = 5
"""Number of times in a row that a connection may break without a new byte."""
RETRY_LIMIT_SECONDS = 10.0
REPORT_SECONDS = 2.0
_CHECKED_BYTES = 64 * 2**20
"""Bytes after which the room on the disk is looked at again."""


@dataclass
class Download:
    """
    Args:
        part: file that may hold the beginning already. It stays if the connection breaks, and goes
            if it cannot be continued.
        limit: most bytes.
        report: takes a few words on how far it is.
    """

    programs: Programs
    data: DataSpec
    headers: dict[str, str]
    owner: Owner | None
    part: Path
    limit: int
    report: Callable[[str], None]
    first_wait: float = 0.5
    """Seconds before the second try."""
    _digest: Any = field(default=None, init=False)
    """Hash of the file's contents so far."""

    async def run(self) -> int:
        """Download the file; return its size.

        Raises:
            DataFailedError: it is not available, is another one, or there is no room for it.
            OSError: the disk cannot be written to.
        """
        before = self._size()
        try:
            size, found = await self._complete()
            if found != self.data.sha256 and before:
                # It may have become another file since the first part was downloaded.
                self.part.unlink()
                size, found = await self._complete()
        except OSError:
            # A full disk is others' disk, too.
            self.part.unlink(missing_ok=True)
            raise
        if found != self.data.sha256:
            self.part.unlink()
            raise DataFailedError(
                f"{self.data.url} has the SHA-256 {found}, and the spec says {self.data.sha256}"
            )
        return size

    def _size(self) -> int:
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0

    async def _complete(self) -> tuple[int, str]:
        """Download what is missing; return size and hash of the file."""
        self._digest = await threads.finish(_digest_of, self.part)
        backoff, tries = Backoff(self.first_wait, RETRY_LIMIT_SECONDS), 0
        while True:
            before = self._size()
            try:
                await self._receive()
                return self._size(), self._digest.hexdigest()
            except ProgramError as error:
                tries = tries + 1 if self._size() <= before else 1
                if not error.again or tries == TRIES:
                    again = f", {tries} times in a row" if error.again else ""
                    cause = Cause.NOT_STARTED if error.again else Cause.USER_ERROR
                    raise DataFailedError(f"{self.data.url}: {error}{again}", cause) from None
                logger.info("download_broken", url=self.data.url, error=error)
                await asyncio.sleep(backoff.next())

    async def _receive(self) -> None:
        """Append what one connection gives."""
        request = {"url": self.data.url, "headers": self.headers, "offset": self._size()}
        async with self.programs.started("fetch", request, self.owner) as process:
            assert process.stdout is not None
            line = await process.stdout.readline()
            if not line:
                return  # it has failed: the end of the block says why
            answer = json.loads(line)
            with self.part.open("ab") as file:
                if answer["offset"] == 0:
                    file.truncate(0)
                    self._digest = hashlib.sha256()
                await self._copy(process.stdout, file, answer["offset"], answer["total"])
                await threads.finish(_sync, file)

    async def _copy(
        self, source: asyncio.StreamReader, file: BinaryIO, size: int, total: int | None
    ) -> None:
        def write(chunk: bytes) -> None:
            file.write(chunk)
            self._digest.update(chunk)

        of_total = f" of {size_text(total)}" if total is not None else ""
        self._check_room(max(0, (total or size) - size), total or size)
        reported, checked = -REPORT_SECONDS, size
        while chunk := await source.read(BUFFER_BYTES):
            size += len(chunk)
            if size - checked > _CHECKED_BYTES or size > self.limit:
                self._check_room(len(chunk), size)
                checked = size
            await threads.finish(write, chunk)
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                self.report(f"downloading data set {self.data.name}, {size_text(size)}{of_total}")

    def _check_room(self, more: int, size: int) -> None:
        free = shutil.disk_usage(self.part.parent).free - RESERVE_BYTES
        if size <= self.limit and more <= free:
            return
        self.part.unlink(missing_ok=True)
        has = f"{size_text(size)} or more"
        if size > self.limit:
            most = size_text(self.limit)
            raise DataFailedError(f"{self.data.url} has {has}, and this host keeps at most {most}")
        raise DataFailedError(
            f"{self.data.url} has {has}, and the disk has {size_text(max(0, free))} left for it",
            Cause.NOT_STARTED,
        )


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _digest_of(path: Path) -> Any:
    if not path.exists():
        return hashlib.sha256()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
