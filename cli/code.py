"""The folder of a job's code: which files go, and their way to the coordinator."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from trainhall.cli.errors import Usage
from trainhall.cluster.archive import (
    MAX_ARCHIVE_BYTES,
    MAX_FILES,
    BadArchive,
    Item,
    check_link,
    check_name,
    pack,
)

IGNORE_FILES = (".trainhallignore", ".gitignore")
"""The first of them that the folder has at its top says what stays behind."""
_NEVER = {".git", "__pycache__"}
_SHOWN = 5
_MEBIBYTE = 1024 * 1024


def packed(folder: Path) -> tuple[str, bytes]:
    """The archive of a folder, and its SHA-256.

    Raises:
        Usage: the folder, or something in it, cannot be sent; it says what, and what to do.
    """
    try:
        items = list(_selected(folder, _ignored(folder)))
        _check_size(folder, items)
        with tempfile.TemporaryFile() as file:
            sha256 = pack(items, file)
            file.seek(0)
            data = file.read()
    except FileNotFoundError as error:
        raise Usage(f"code: there is no {error.filename}") from None
    except NotADirectoryError:
        raise Usage(f"code: {folder} is not a folder") from None
    except OSError as error:
        why = error.strerror or error
        raise Usage(f"code: {error.filename or folder} cannot be read: {why}") from None
    except BadArchive as error:
        raise Usage(f"code: {error}; change it, or add it to {folder / IGNORE_FILES[0]}") from None
    if len(data) > MAX_ARCHIVE_BYTES:
        raise _too_large(folder, items)
    return sha256, data


def _ignored(folder: Path) -> GitIgnoreSpec:
    for name in IGNORE_FILES:
        path = folder / name
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            try:
                return GitIgnoreSpec.from_lines(lines)
            except ValueError as error:
                raise Usage(f"code: {path}: {error}; mend or remove the line") from None
    return GitIgnoreSpec.from_lines([])


def _selected(folder: Path, ignored: GitIgnoreSpec, below: str = "") -> Iterator[Item]:
    """What of a folder is sent. As with git, nothing below a folder that is ignored is."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda e: e.name)
    for entry in found:
        name = below + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or ignored.match_file(name + "/" if is_folder else name):
            continue
        path = Path(entry.path)
        if is_folder:
            if not (path / "pyvenv.cfg").exists():  # a virtual environment
                yield from _selected(path, ignored, name + "/")
            continue
        check_name(name)
        if entry.is_symlink():
            check_link(name, os.readlink(path))
            yield Item(name, path, 0)
        elif entry.is_file():
            yield Item(name, path, entry.stat().st_size)
        else:
            raise BadArchive(f"{name} is a device, a pipe or a socket")


def _check_size(folder: Path, items: Sequence[Item]) -> None:
    if not items:
        raise Usage(f"code: {folder} holds no file that would be sent")
    if len(items) > MAX_FILES:
        raise Usage(
            f"code: {folder} holds {len(items):,} files, and at most {MAX_FILES:,} can be sent; "
            f"name what is not needed in {folder / IGNORE_FILES[0]}"
        )
    if sum(item.size for item in items) > MAX_ARCHIVE_BYTES:
        raise _too_large(folder, items)


def _too_large(folder: Path, items: Sequence[Item]) -> Usage:
    total = sum(item.size for item in items) / _MEBIBYTE
    largest = sorted(items, key=lambda i: i.size, reverse=True)[:_SHOWN]
    return Usage(
        f"code: {folder} has {total:,.1f} MiB, and at most {MAX_ARCHIVE_BYTES // _MEBIBYTE} MiB "
        f"can be sent; name what is not needed in {folder / IGNORE_FILES[0]}. The largest files:",
        [f"{item.size / _MEBIBYTE:,.1f} MiB  {item.name}" for item in largest],
    )
