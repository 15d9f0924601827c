"""Program that unpacks an archive into a new folder, and nothing outside it.

Request: `{"archive": path, "to": path, "limit": bytes}`; answer: `{"bytes": n, "files": n}`.
"""

import json
import lzma
import os
import resource
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from trainhall.cluster.agent.data import programs

RESERVE_BYTES = 2**30
"""Space on the disk that data sets leave to others."""
_BLOCK = 4096
"""Bytes that a file, folder or link takes at least: many empty ones fill a disk, too."""
_MEMORY_BYTES = 4 * 2**30
"""Headers of an archive may be as long as its author likes, and are read as a whole."""


class _UnpackError(Exception):
    """The archive cannot be unpacked."""


def main() -> int:
    request = programs.read_request()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    to = Path(request["to"])
    try:
        to.mkdir()
        size, files = _unpack(Path(request["archive"]), to, request["limit"])
    except _UnpackError as error:
        return programs.fail(f"its archive cannot be unpacked: {error}")
    except OSError as error:
        return programs.fail(f"its archive cannot be unpacked: {error.strerror or error}")
    os.sync()  # a crash of the host leaves no half file under the final name
    sys.stdout.write(json.dumps({"bytes": size, "files": files}))
    return 0


def _unpack(archive: Path, to: Path, limit: int) -> tuple[int, int]:
    """Return the bytes and the number of the files."""
    taken = files = size = 0
    members = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    try:
        for length in members(archive, to):
            if length is not None:
                files, size = files + 1, size + length
            taken += max(length or 0, _BLOCK)
            if taken > limit:
                raise _UnpackError(f"its files take more than {limit:,} bytes")
    except (
        tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError,
        ValueError, KeyError, MemoryError,
    ) as error:  # fmt: skip
        raise _UnpackError(str(error) or type(error).__name__) from None
    return size, files


def _tar_members(archive: Path, to: Path) -> Iterator[int | None]:
    """Extract member after member; before each yield the length of a file, or None for others."""
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.isfile():
                _check_room(member.size, to)
            yield member.size if member.isfile() else None
            _check_way(member.name, to)
            if member.islnk():
                _check_way(member.linkname, to)
                if not (to / member.linkname).is_file():
                    # It would be a copy of a member that nothing has checked.
                    raise _UnpackError(f"{member.name!r} is a link to what is not there")
            # It refuses what leads out of the folder, devices, and odd modes.
            tar.extract(member, to, filter="data")
            vars(tar)["members"] = []  # it would keep all of them in memory


def _check_way(name: str, to: Path) -> None:
    """Refuse a path that leads through a link, or replaces one: some versions of Python can be made
    to follow it out of the folder, and this process may have all rights."""
    path = str(to)
    for part in name.split("/"):
        if part == "..":
            raise _UnpackError(f"{name!r} would be outside of its folder")
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise _UnpackError(f"{name!r} leads through a link of the archive")


def _zip_members(archive: Path, to: Path) -> Iterator[int | None]:
    """Extract member after member; before each yield the length of a file, or None for others."""
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if not member.is_dir():
                _check_room(member.file_size, to)
            yield member.file_size if not member.is_dir() else None
            if member.filename.startswith("/") or ".." in member.filename.split("/"):
                raise _UnpackError(f"{member.filename!r} would be outside of its folder")
            file.extract(member, to)


def _check_room(size: int, to: Path) -> None:
    free = shutil.disk_usage(to).free - RESERVE_BYTES
    if size > free:
        raise _UnpackError(f"the disk has {max(0, free):,} bytes left for it")


if __name__ == "__main__":
    sys.exit(main())
