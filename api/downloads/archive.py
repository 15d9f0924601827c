"""All files of a job as one tar, made while it is sent."""

import asyncio
import tarfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
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
    chunks = _chunks(members)
    # One hop to a thread for many small files.
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


def _chunks(members: Iterable[Member]) -> Iterator[bytes]:
    pending: list[bytes] = []
    length = size = 0
    for part in _parts(members):
        pending.append(part)
        length += len(part)
        size += len(part)
        if size >= _CHUNK:
            yield b"".join(pending)
            pending, size = [], 0
    end = length + 2 * _BLOCK
    yield b"".join([*pending, bytes(2 * _BLOCK + -end % tarfile.RECORDSIZE)])


def _parts(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        yield _header(member)
        yield from _read(member)
        yield bytes(-member.size % _BLOCK)


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.path)
    info.size, info.mode = member.size, _MODE
    info.mtime = int(member.modified_at.timestamp())
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _read(member: Member) -> Iterator[bytes]:
    left = member.size
    try:
        with member.content.open("rb", buffering=0) as file:
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                yield chunk
                left -= len(chunk)
    except FileNotFoundError:
        pass
    if left > 0:
        raise GoneError(f"{member.path} was removed while it was sent")
