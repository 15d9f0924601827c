"""Downloaded data sets of this host: each is downloaded once, shared, and removed by least use.

<data-dir>/data/
    <key>/          a data set (`folder_store`)
        files/      the file, or what was unpacked
        facts.json  how many files and bytes that are
    <key>.partial   a download that may be continued
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainhall.cluster.agent.folder_store import FolderStore, remove

LIMIT_SHARE = 0.5
"""Share of the disk that all data sets may take."""
PARTIAL_SECONDS = 7 * 86400
"""After that time a download is not continued any more."""


class DataStore(FolderStore):
    """
    Args:
        folder: of this host's data sets.
        in_use: returns the data sets of the attempts that are on this host.
        readable: users of jobs are to read them.
        limit: bytes of all together; None: half of the disk.
    """

    def __init__(
        self,
        folder: Path,
        in_use: Callable[[], Iterable[Path]],
        *,
        readable: bool,
        limit: int | None = None,
    ) -> None:
        if limit is None:
            limit = round(shutil.disk_usage(_existing(folder)).total * LIMIT_SHARE)
        super().__init__(folder, in_use, readable=readable, limit=limit)

    @property
    def limit(self) -> int:
        return self._limit

    def partial(self, key: str) -> Path:
        """Return the file of a download that is under way."""
        return self._folder / f"{key}.partial"

    def clean(self) -> None:
        super().clean()
        self._remove_old_parts()

    def _evict(self) -> None:
        super()._evict()
        self._remove_old_parts()

    def _remove_old_parts(self) -> None:
        wanted = {self.partial(path.name) for path in tuple(self._wanted)}
        for path in self._folder.glob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                is_old = path.stat().st_mtime < time.time() - PARTIAL_SECONDS
                if is_old and path not in wanted:
                    remove(path)

    def _seal(self, part: Path) -> None:
        super()._seal(part)
        for base, _, files in os.walk(part):
            for name in files:
                path = os.path.join(base, name)
                mode = os.lstat(path).st_mode
                if not stat.S_ISLNK(mode):
                    os.chmod(path, 0o555 if mode & 0o100 else 0o444)


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())
