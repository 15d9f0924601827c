"""Code as it travels: a folder packed into a tar, always to the same bytes, and unpacked again.

A receiver trusts nothing in an archive. All of it is checked before the first file is written, and
one member that could leave the folder, fill the disk or overwrite something makes the whole of it
unusable. The rules are stricter than those of `tarfile.data_filter` and do not
depend on the files that are there. What is read is bounded at every point, compressed or not.
"""

import gzip
import hashlib
import os
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_FILES = 20_000
_MAX_PATH_BYTES = 1024
_MAX_PART_BYTES = 255
_MAX_DEPTH = 64
"""Parts of a name: each but the last is a folder to make, whether it is a member or not."""
_BLOCK = 1024 * 1024
_GZIP = b"\x1f\x8b"
_TAR_END = 1024
"""A tar ends with at least so many zero bytes."""
# A reader of headers calls itself for the one that follows a long name.
_NO_TAR = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error),
    *(EOFError, ValueError, RecursionError),
)


class ArchiveError(ValueError):
    """Archive of code that cannot be used; the message says why."""


@dataclass(frozen=True)
class Contents:
    files: int
    """Files and links."""
    size: int
    """Bytes of all files."""


@dataclass(frozen=True)
class Item:
    """A file or a link on its way into an archive."""

    name: str
    """Relative to the folder, with `/` between parts."""
    path: Path
    size: int
    """Bytes; 0 for a link."""


def pack(items: Sequence[Item], to: IO[bytes]) -> str:
    """Write an archive of the items and return its SHA-256.

    The same names, contents, links and executable bits give the same bytes on every host: owners,
    times and other modes are left out.

    Raises:
        OSError: a file cannot be read, or changed meanwhile.
    """
    hashing: Any = _Hashing(to)
    with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for item in sorted(items, key=lambda i: i.name.encode("utf-8", "surrogatepass")):
            member = tarfile.TarInfo(item.name)
            if item.path.is_symlink():
                member.type, member.mode = tarfile.SYMTYPE, 0o777
                member.linkname = os.readlink(item.path)
                tar.addfile(member)
                continue
            with item.path.open("rb") as file:
                found = os.fstat(file.fileno())
                member.size = found.st_size
                member.mode = 0o755 if found.st_mode & 0o100 else 0o644
                tar.addfile(member, file)
    return str(hashing.sha256)


def inspect(archive: Path) -> Contents:
    """Read a whole archive and return its contents.

    Raises:
        ArchiveError: it may not be unpacked.
    """
    files = size = 0
    with _opened(archive) as tar:
        for member, _ in _checked(tar):
            files += not member.isdir()
            size += member.size
    if not files:
        raise ArchiveError("it has no files")
    return Contents(files, size)


def file_names(archive: Path) -> frozenset[str]:
    """Return the names of the files and links in an archive, relative to its folder.

    Raises:
        ArchiveError: it may not be unpacked.
    """
    with _opened(archive) as tar:
        return frozenset(str(path) for member, path in _checked(tar) if not member.isdir())


@dataclass(frozen=True)
class ArchiveEntry:
    """A file or a link in an archive."""

    path: str
    size: int
    """Bytes; 0 for a link."""
    sha256: str | None
    """None for a link."""
    link: str | None
    """Target of a link; None for a file."""
    is_executable: bool


def list_entries(archive: Path) -> list[ArchiveEntry]:
    """Return the files and links in an archive, with the hashes of the files.

    Raises:
        ArchiveError: it may not be unpacked.
    """
    found = []
    with _opened(archive) as tar:
        for member, path in _checked(tar):
            if member.issym():
                found.append(ArchiveEntry(str(path), 0, None, member.linkname, False))
            elif not member.isdir():
                sha256 = _hash(tar.extractfile(member))
                mode = bool(member.mode & 0o100)
                found.append(ArchiveEntry(str(path), member.size, sha256, None, mode))
    return found


def _hash(source: IO[bytes] | None) -> str:
    assert source is not None
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def read_texts(archive: Path, names: Collection[str]) -> dict[str, str | None]:
    """Return the texts of files by their names, the target of a link; None for a binary file.

    Args:
        names: of files small enough to be held in memory together.

    Raises:
        ArchiveError: it may not be unpacked.
    """
    found: dict[str, str | None] = {}
    with _opened(archive) as tar:
        for member, path in _checked(tar):
            if str(path) not in names or member.isdir():
                continue
            if member.issym():
                found[str(path)] = f"link to {member.linkname}"
                continue
            source = tar.extractfile(member)
            assert source is not None
            found[str(path)] = _text(source.read())
    return found


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def unpack(archive: Path, folder: Path) -> Contents:
    """Unpack an archive into `folder`, which appears at once and complete, or not at all.

    Raises:
        ArchiveError: it may not be unpacked; nothing was written.
        OSError: there is no room, or the folder exists.
    """
    contents = inspect(archive)
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir(parents=True)
        _write_members(archive, part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return contents


def check_name(name: str) -> PurePosixPath:
    """Return a member's name as a path within the folder; `.` is the folder itself.

    Raises:
        ArchiveError: it could leave the folder, or cannot be named or written everywhere.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise ArchiveError(f"{name!r} is not named in UTF-8") from None
    if _has_control_characters(name):
        raise ArchiveError(f"{name!r} has control characters in its name")
    path = PurePosixPath(name)
    if path.is_absolute():
        raise ArchiveError(f"{name} is an absolute path")
    if ".." in path.parts:
        raise ArchiveError(f"{name} points outside the folder")
    longest = max((len(part.encode()) for part in path.parts), default=0)
    if len(encoded) > _MAX_PATH_BYTES or longest > _MAX_PART_BYTES:
        raise ArchiveError(f"{name[:80]}… is too long a name")
    if len(path.parts) > _MAX_DEPTH:
        raise ArchiveError(f"{name[:80]}… lies more than {_MAX_DEPTH} folders deep")
    return path


def _has_control_characters(text: str) -> bool:
    return any(ord(c) < 32 or ord(c) == 127 for c in text)


def check_link(name: str, target: str) -> None:
    """Check that a symbolic link stays within the folder, whatever other links there are.

    `..` may only stand at the beginning of a target: behind another link it could lead further up
    than the names show.

    Raises:
        ArchiveError: it may lead out, or cannot be named or written everywhere.
    """
    try:
        size = len(target.encode())
    except UnicodeEncodeError:
        raise ArchiveError(f"{name} is a link to {target!r}, which is not named in UTF-8") from None
    if _has_control_characters(target):
        raise ArchiveError(f"{name} is a link to {target[:80]!r}, which has control characters")
    if size > _MAX_PATH_BYTES:
        raise ArchiveError(f"{name} is a link to {target[:80]}…, which is too long a name")
    parts = PurePosixPath(target).parts
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    outside = not parts or target.startswith("/") or ".." in parts[ups:]
    if outside or ups >= len(PurePosixPath(name).parts):
        raise ArchiveError(f"{name} is a link that may lead out of the folder, to {target!r}")


def _checked(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yield the members and their paths, each found harmless beside those before it."""
    entries: set[PurePosixPath] = set()
    leaves: set[PurePosixPath] = set()
    """Files and links: nothing lies below them."""
    folders: set[PurePosixPath] = set()
    count = size = 0
    for member in tar:
        count += 1
        if count > MAX_FILES:
            raise ArchiveError(f"it has more than {MAX_FILES:,} files and folders")
        path = check_name(member.name)
        if member.isdir() and not path.parts:
            continue
        _check_kind(member)
        size += member.size
        if size > MAX_UNPACKED_BYTES:
            raise ArchiveError(f"it unpacks to {_too_much()}")
        parents = set(path.parents)
        if path in entries or not path.parts or (path in folders and not member.isdir()):
            raise ArchiveError(f"{member.name} is in it twice")
        if under := parents & leaves:
            raise ArchiveError(f"{member.name} lies below {under.pop()}, which is not a folder")
        entries.add(path)
        folders |= parents
        if len(folders) > MAX_FILES:
            raise ArchiveError(f"it has more than {MAX_FILES:,} files and folders")
        if not member.isdir():
            leaves.add(path)
        yield member, path


def _check_kind(member: tarfile.TarInfo) -> None:
    if member.issym():
        check_link(str(PurePosixPath(member.name)), member.linkname)
    elif member.islnk():
        raise ArchiveError(f"{member.name} is a hard link; pack with tar --hard-dereference")
    elif member.issparse():
        raise ArchiveError(f"{member.name} is a sparse file")
    elif (not member.isfile() and not member.isdir()) or member.size < 0:
        raise ArchiveError(f"{member.name} is a device, a pipe or of another special kind")


def _write_members(archive: Path, folder: Path) -> None:
    links = []
    with _opened(archive) as tar:
        for member, path in _checked(tar):
            target = folder / path
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                # Last of all, so that no file is ever written through one.
                links.append((target, member.linkname))
                continue
            source = tar.extractfile(member)
            assert source is not None
            with target.open("xb") as file:
                shutil.copyfileobj(source, file, _BLOCK)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
    for link, linked in links:
        link.symlink_to(linked)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar, plain or compressed with gzip, to be read from the beginning to the end."""
    with archive.open("rb") as raw:
        compressed = raw.read(2) == _GZIP
        raw.seek(0)
        bounded: Any = _Bounded(gzip.GzipFile(fileobj=raw) if compressed else raw)
        try:
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                yield tar
            bounded.see_end()
        except ArchiveError:
            raise
        except _NO_TAR as error:
            raise ArchiveError(f"it is not a tar archive, plain or gzipped: {error}") from None


class _Bounded:
    """Reads so much and no more, and remembers how it ended."""

    def __init__(self, source: Any) -> None:
        self._source = source
        # Headers and padding come on top of what files hold.
        self._left = MAX_UNPACKED_BYTES + 4096 * MAX_FILES
        self._tail = b""

    def read(self, size: int) -> bytes:
        data: bytes = self._source.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError(f"it unpacks to {_too_much()}")
        self._tail = (self._tail + data)[-_TAR_END:]
        return data

    def see_end(self) -> None:
        """Read what is left: a tar that was cut short looks as if it ended there."""
        while self.read(_BLOCK):
            pass
        if self._tail.strip(b"\0") or len(self._tail) < _TAR_END:
            raise ArchiveError("it is cut short: the end of the tar is missing")


class _Hashing:
    def __init__(self, to: IO[bytes]) -> None:
        self._to = to
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._to.write(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def _too_much() -> str:
    return f"more than {MAX_UNPACKED_BYTES // 1024**2} MiB"
