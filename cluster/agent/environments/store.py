"""Installed environments of this host: each is built once, shared, and removed by least use.

    <data-dir>/environments/
        <key>/          an environment (`folder_store`)
        cache/          uv's, unless UV_CACHE_DIR names another
        python/         versions of Python that uv fetched, unless UV_PYTHON_INSTALL_DIR says else

Files of several environments are hard links to those in the cache. So sizes are upper bounds, and
the cache is cleaned when it is over its own limit.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from trainhall.cluster.agent.folder_store import FolderStore, remove, size_of
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

LIMIT_BYTES = 50 * 1024**3
"""Size limit of all environments; the least recently used goes first."""
CACHE_BYTES = 50 * 1024**3
"""Size limit of uv's cache, which is then emptied."""


class EnvironmentStore(FolderStore):
    """
    Args:
        folder: of this host's environments.
        in_use: returns the environments of the attempts that are on this host.
        readable: users of jobs are to read them.
    """

    def __init__(
        self,
        folder: Path,
        in_use: Callable[[], Iterable[Path]],
        *,
        readable: bool,
        limit: int = LIMIT_BYTES,
        cache_limit: int = CACHE_BYTES,
    ) -> None:
        super().__init__(folder, in_use, readable=readable, limit=limit)
        self._cache_limit = cache_limit

    @property
    def cache(self) -> Path:
        return self._folder / "cache"

    @property
    def pythons(self) -> Path:
        return self._folder / "python"

    def _evict(self) -> None:
        super()._evict()
        # A build that runs reads from the cache.
        if not self._builds and self.cache.is_dir() and size_of(self.cache) > self._cache_limit:
            logger.info("package_cache_emptied", reason="over the size limit")
            remove(self.cache)
