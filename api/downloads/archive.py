"""All files of a job as one tar, made while it is sent."""

import asyncio
import tarfile
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_CHUNK = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
_MODE = 0o644


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    path: str
    size: int
    modified_at: datetime
    content: Path


class GoneError(Exception):
    """A file was removed or changed while an archive with it was sent."""


def archive_size(members: Iterable[Member]) -> int:
    """Return the length of `archive` in bytes."""
    length = sum(len(_header(each)) + each.size + -each.size % _BLOCK for each in members)
    length += 2 * _BLOCK
    return length + -length % tarfile.RECORDSIZE


async def archive(members: Sequence[Member]) -> AsyncIterator[bytes]:
    """Yield a tar of files as it is read from the disk: nothing is stored, and the same files make
    the same bytes.

    Raises:
        GoneError: in the middle, so that the connection breaks: a file is not what it was.
    """
    length = 0
    for member in members:
        header = _header(member)
        yield header
        length += len(header)
        async for chunk in _read(member):
            yield chunk
            length += len(chunk)
        padding = bytes(-member.size % _BLOCK)
        yield padding
        length += len(padding)
    end = length + 2 * _BLOCK
    yield bytes(2 * _BLOCK + -end % tarfile.RECORDSIZE)


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.path)
    info.size, info.mode = member.size, _MODE
    info.mtime = int(member.modified_at.timestamp())
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


async def _read(member: Member) -> AsyncIterator[bytes]:
    left = member.size
    try:
        with await asyncio.to_thread(member.content.open, "rb", buffering=0) as file:
            while left > 0 and (chunk := await asyncio.to_thread(file.read, min(left, _CHUNK))):
                yield chunk
                left -= len(chunk)
    except FileNotFoundError:
        pass
    if left > 0:
        raise GoneError(f"{member.path} was removed while it was sent")
