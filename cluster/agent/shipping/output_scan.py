"""The files below an attempt's working folder that are its outputs: what a scan of it finds."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainhall.cluster.wire.output_names import OutputNameError, name_of
from trainhall.cluster.wire.outputs import Skipped, Why
from trainhall.training.link.profiling.messages import traces_folder
from trainhall.training.link.regular_file import read_regular
from trainhall.training.spec.recovery import OutputsSpec

IGNORE_FILE = b".trainhallignore"
MAX_IGNORE_BYTES = 2**20
MAX_ENTRIES = 500_000
"""Files and folders that one scan looks at."""
_NEVER = frozenset({b".git", b"__pycache__", b".venv"})
Matches = Callable[[str], bool]


class Stamp(NamedTuple):
    """State of a file: while it is the same, so is the content."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Found(NamedTuple):
    path: bytes
    """On this host, without links."""
    stamp: Stamp


@dataclass
class Scan:
    files: dict[str, Found] = field(default_factory=dict)
    """By name (`wire.output_names`)."""
    skipped: list[Skipped] = field(default_factory=list)
    is_complete: bool = True
    """False: some folder could not be read, so that what is not found may be there."""


SentCode = dict[bytes, tuple[int, int]]
"""Size and time (ns) of the files of a job's code, by their paths within it."""


def read_code(folder: Path) -> SentCode:
    """Return the files of unpacked code; none if it is not here any more."""
    top = os.fsencode(folder)
    found = {}
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                found[path[len(top) + 1 :]] = (status.st_size, status.st_mtime_ns)
    return found


def scan(root: Path, spec: OutputsSpec, code: SentCode | None, prepared_ns: int) -> Scan:
    """Look for outputs, as who owns the folder.

    Args:
        code: of which `root` began as a copy; None: it began empty.
        prepared_ns: time when the copy was made; older files are code, should `code` be empty.
    """
    top = os.fsencode(root)
    begin = top if spec.is_whole else os.path.join(top, os.fsencode(spec.path))
    found = Scan()
    if not os.path.isdir(begin):
        found.is_complete = os.path.isdir(top)
        return found
    ignored, wanted = _ignored(top), _wanted(spec)
    is_code = _code_of(code, prepared_ns)
    real_top = os.path.realpath(top)
    for number, entry in enumerate(_walk(begin, top, ignored, found)):
        if number >= MAX_ENTRIES:
            found.is_complete = False
            found.skipped.append(_skipped(entry.path[len(top) + 1 :], 0, "files_limit"))
            break
        relative = entry.path[len(top) + 1 :]
        try:
            target = _target(entry, real_top)
            if target is None:
                continue
            path, status = target
        except OSError:
            continue  # it is gone by now, or a link to nothing
        text = os.fsdecode(relative)
        if not wanted(text) or (path == entry.path and is_code(relative, status)):
            continue
        try:
            if path == b"":
                found.skipped.append(_skipped(relative, 0, "link"))
            else:
                found.files[name_of(relative)] = Found(path, Stamp.of(status))
        except OutputNameError:
            found.skipped.append(_skipped(relative, status.st_size, "name"))
    return found


def _walk(
    begin: bytes, top: bytes, ignored: Matches, found: Scan
) -> Iterator["os.DirEntry[bytes]"]:
    """Yield what is below a folder and no folder itself; nothing below an ignored one."""
    folders = [begin]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as opened:
                entries = sorted(opened, key=lambda entry: entry.name)
        except OSError:
            found.is_complete = False
            continue
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            relative = os.fsdecode(entry.path[len(top) + 1 :])
            if entry.name in _NEVER or ignored(relative + "/" if is_folder else relative):
                continue
            if is_folder:
                folders.append(entry.path)
            else:
                yield entry


def _target(entry: "os.DirEntry[bytes]", real_top: bytes) -> tuple[bytes, os.stat_result] | None:
    """Return where the bytes of an entry are; an empty path: outside of the folder. None: it is no
    file.

    Raises:
        OSError: it is not there.
    """
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return entry.path, status
    if not stat.S_ISLNK(status.st_mode):
        return None
    real = os.path.realpath(entry.path)
    if not real.startswith(real_top + b"/"):
        return b"", status
    target = os.stat(real, follow_symlinks=False)
    # What a link to a folder leads to is found there.
    return (real, target) if stat.S_ISREG(target.st_mode) else None


def _code_of(code: SentCode | None, prepared_ns: int) -> Callable[[bytes, os.stat_result], bool]:
    """Return what tells whether a file is as it was sent with the code."""
    if code is None:
        return lambda _path, _status: False
    if not code:
        return lambda _path, status: status.st_mtime_ns < prepared_ns
    # The copy has the times of what it was made from.
    return lambda path, status: code.get(path) == (status.st_size, status.st_mtime_ns)


def _ignored(top: bytes) -> Matches:
    try:
        data = read_regular(Path(os.fsdecode(os.path.join(top, IGNORE_FILE))), MAX_IGNORE_BYTES)
    except OSError:
        return lambda _path: False
    with contextlib.suppress(ValueError):  # `submit` has said so
        return _matcher(data.decode("utf-8", "replace").splitlines())
    return lambda _path: False


def _wanted(spec: OutputsSpec) -> Matches:
    if not spec.include and not spec.exclude:
        return lambda _path: True
    profiles = traces_folder(spec.path) + "/"
    includes = _matcher(spec.include) if spec.include else lambda _path: True
    excludes = _matcher(spec.exclude)
    # Users ask for profiles whatever the job's own files are.
    return lambda path: path.startswith(profiles) or (includes(path) and not excludes(path))


def _matcher(lines: Sequence[str]) -> Matches:
    # Few jobs have patterns, and an agent is to be light.
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines).match_file


def _skipped(relative: bytes, size: int, why: Why) -> Skipped:
    shown = relative[:1000]
    return Skipped(path=_shown(shown), size=size, why=why)


def _shown(relative: bytes) -> str:
    """Return the name, or the beginning of one that is too long."""
    while True:
        try:
            return name_of(relative)
        except OutputNameError:
            relative = relative[: len(relative) // 2]
