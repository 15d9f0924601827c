"""The event files below a folder, looked for again and again at the cost of a `stat` per folder."""

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

MARK = "tfevents"
"""Part of the names of all event files."""
MAX_FOLDERS = 20_000
"""Folders that are looked through; those beyond are not."""
MAX_FILES = 1000
SETTLED_SECONDS = 1.0
"""A folder that changed more recently may change again at the time that it has."""
_NEVER = frozenset({".git", "__pycache__", ".venv", "node_modules"})


@dataclass
class _Folder:
    modified_ns: int | None
    """None: look again."""
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Named like event files, and no regular files."""


class EventFolders:
    """The folders below `root`; what links lead to is left out."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, _Folder] = {}

    def look(self) -> tuple[dict[str, int], list[str]]:
        """Return the sizes of event files by their paths below the root, and the paths of what has
        such a name and is none. Above `MAX_FILES` and `MAX_FOLDERS` the rest is left out."""
        sizes: dict[str, int] = {}
        others: list[str] = []
        before, self._known = self._known, {}
        waiting = [""]
        while waiting and len(self._known) < MAX_FOLDERS:
            path = waiting.pop()
            folder = self._read(path, before.get(path))
            if folder is None:
                continue
            self._known[path] = folder
            waiting += folder.folders
            others += folder.others
            for name in folder.files:
                if len(sizes) < MAX_FILES:
                    self._measure(name, sizes, others)
        return sizes, others

    def _measure(self, name: str, sizes: dict[str, int], others: list[str]) -> None:
        try:
            found = os.lstat(self._root / name)
        except OSError:
            return  # it is gone by now
        if stat.S_ISREG(found.st_mode):
            sizes[name] = found.st_size
        else:
            others.append(name)

    def _read(self, path: str, known: _Folder | None) -> _Folder | None:
        """Return a folder's content; None: it is not there, or cannot be read."""
        whole = self._root / path
        try:
            status = os.lstat(whole)
            if not stat.S_ISDIR(status.st_mode):
                return None
            if known is not None and known.modified_ns == status.st_mtime_ns:
                return known
            settled = time.time() - status.st_mtime > SETTLED_SECONDS
            folder = _Folder(status.st_mtime_ns if settled else None)
            with os.scandir(whole) as entries:
                for entry in entries:
                    name = f"{path}/{entry.name}" if path else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _NEVER:
                            folder.folders.append(name)
                    elif MARK in entry.name:
                        is_file = entry.is_file(follow_symlinks=False)
                        (folder.files if is_file else folder.others).append(name)
        except OSError:
            return None
        return folder
