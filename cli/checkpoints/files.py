"""A checkpoint's files on this host: where they lie, or fetched from the coordinator."""

import contextlib
import hashlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import CliError, UsageError, WrongStateError

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


def newest_below(path: Path) -> Path:
    """Return the folder itself if it is a checkpoint, else the newest one in it.

    Raises:
        UsageError: there is none.
    """
    from trainhall.training.checkpoint.format.names import MANIFEST

    if (path / MANIFEST).exists():
        return path
    if (found := newest_in(path)) is not None:
        return found
    raise UsageError(f"there is no checkpoint in {path}")


def newest_in(path: Path) -> Path | None:
    """Return the newest in a folder of checkpoints, or in the output of `trainhall run`."""
    from trainhall.training.checkpoint.format.names import scan

    for folder in (path, path / "checkpoints"):
        if found := scan(folder):
            return found[0].path
    return None


def folder_here(checkpoint: out.Json) -> Path | None:
    """Return the folder of a checkpoint on shared storage, if this host sees it."""
    location = Path(checkpoint["location"])
    return location if location.is_absolute() and location.is_dir() else None


@contextlib.contextmanager
def on_this_host(client: "Client", checkpoint: out.Json) -> Iterator[Path]:
    """Yield a checkpoint's folder for use within: it may be a temporary copy.

    Raises:
        WrongStateError: neither this host nor the coordinator sees it, or it is deleted.
        CliError: there is no room for the copy, or it arrives damaged.
    """
    if (here := folder_here(checkpoint)) is not None:
        yield here
        return
    with _ends_in_order(), tempfile.TemporaryDirectory(prefix="trainhall-") as temporary:
        yield _fetch(client, checkpoint, Path(temporary))


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """Leave on SIGTERM as on an error, so that what was fetched does not stay behind."""

    def leave(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fetch(client: "Client", checkpoint: out.Json, into: Path) -> Path:
    from trainhall.training.checkpoint.format.manifest import safe_path

    identity = checkpoint["id"]
    try:
        files = client.get(f"/checkpoints/{identity}/files")["items"]
    except WrongStateError as error:
        raise WrongStateError(f"checkpoint {identity} cannot be downloaded: {error}") from None
    size = out.size(sum(file["size"] for file in files))
    out.notice(f"Downloading checkpoint {identity} of step {checkpoint['step']} ({size}).")
    folder = into / PurePosixPath(checkpoint["location"]).name
    for file in files:
        to = folder / safe_path(file["path"])
        to.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        try:
            with to.open("wb") as target:
                for piece in client.stream(f"/checkpoints/{identity}/files/{quote(file['path'])}"):
                    digest.update(piece)
                    target.write(piece)
        except OSError as error:
            why = error.strerror or str(error)
            raise CliError(
                f"checkpoint {identity} ({size}) cannot be written to {into}: {why}",
                ["Set TMPDIR to choose another folder for temporary files."],
            ) from None
        if digest.hexdigest() != file["sha256"]:
            raise CliError(
                f"{file['path']} of checkpoint {identity} arrived damaged: its SHA-256 is "
                f"{digest.hexdigest()}, not {file['sha256']}",
                [f"Check the original with `trainhall ckpt verify {identity}`."],
            )
    return folder
