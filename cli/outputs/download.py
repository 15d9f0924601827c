"""Outputs of a job on their way to this host: chosen, resumed, verified, kept within a folder."""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainhall.cli.base.errors import CliError, NotFoundError, UnreachableError
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.wire.output_names import OutputNameError, path_of

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

Json = dict[str, Any]
ATTEMPTS = 5
"""Tries in a row to continue a file, each time from where the connection broke."""
FIRST_PAUSE = 0.2


class DamagedOutputError(CliError):
    """A file did not arrive as it was stored."""


def outputs_of(
    client: "Client", job_id: str, rank: int | None = None, find: str | None = None
) -> Iterator[Json]:
    """Yield the outputs of a job, or those whose paths have all words of `find`, by path."""
    return client.items(f"/outputs/jobs/{job_id}", rank=rank, find=find)


def chosen(files: Iterable[Json], patterns: Sequence[str]) -> list[Json]:
    """Return the files that any of the patterns means: all of them without one.

    Args:
        patterns: paths, folders, or patterns of whole paths in which `*` stands for any characters,
            `/` included.

    Raises:
        NotFoundError: a pattern means none.
    """
    files = list(files)
    if not patterns:
        return files
    found: dict[str, Json] = {}
    for pattern in patterns:
        matches = [file for file in files if _is_meant(file["path"], pattern)]
        if not matches:
            raise NotFoundError(f"the job has no output {pattern!r}")
        found.update((file["path"], file) for file in matches)
    return [file for file in files if file["path"] in found]


def _is_meant(path: str, pattern: str) -> bool:
    folder = pattern.rstrip("/") + "/"
    return path == pattern or path.startswith(folder) or fnmatchcase(path, pattern)


def stream(
    client: "Client", job_id: str, file: Json, rank: int | None, start: int = 0
) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` on; a connection that breaks is taken up again.

    Raises:
        UnreachableError: the coordinator stays away.
    """
    path = f"/outputs/jobs/{job_id}/files/{quote(file['path'])}"
    backoff, tries = Backoff(FIRST_PAUSE), 0
    while start < file["size"]:
        before = start
        try:
            for piece in client.stream(path, start=start, rank=rank):
                yield piece
                start += len(piece)
            if start == before:
                return  # the file is shorter than its record
        except UnreachableError:
            tries = 1 if start > before else tries + 1
            if tries == ATTEMPTS:
                raise
            time.sleep(backoff.next())


def read(client: "Client", job_id: str, file: Json, rank: int | None) -> Iterator[bytes]:
    """Yield the bytes of a file; at the end they are compared with its hash.

    Raises:
        DamagedOutputError: they differ.
    """
    digest = hashlib.sha256()
    for piece in stream(client, job_id, file, rank):
        digest.update(piece)
        yield piece
    _check(file, digest.hexdigest())


def fetch(client: "Client", job_id: str, file: Json, folder: Path, rank: int | None) -> bool:
    """Bring a file to its place below a folder; return False if it was there already.

    What an earlier call has received is not fetched again.

    Raises:
        DamagedOutputError: it arrives damaged.
        CliError: it would lie outside the folder, or cannot be written.
    """
    target = place_of(folder, file["path"])
    try:
        if _is_there(target, file):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{file['sha256'][:32]}.part")
        _receive(client, job_id, file, half, rank)
        moment = datetime.fromisoformat(file["modified_at"]).timestamp()
        os.utime(half, (moment, moment))
        half.replace(target)
    except OSError as error:
        why = error.strerror or str(error)
        raise CliError(f"{target} cannot be written: {why}") from None
    return True


def place_of(folder: Path, name: str) -> Path:
    """Return the path of an output on this host, with the bytes that its name has on the job's.

    Raises:
        CliError: it would lie outside the folder.
    """
    try:
        target = folder / os.fsdecode(path_of(name))
    except OutputNameError as error:
        raise CliError(f"{name!r} is not the name of an output: {error}") from None
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise CliError(
            f"{target} would be written outside {folder}, by a symbolic link in it; remove the "
            "link, or choose another folder with --to"
        )
    return target


def _is_there(target: Path, file: Json) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file["size"]:
        return False
    with target.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == str(file["sha256"])


def _receive(client: "Client", job_id: str, file: Json, half: Path, rank: int | None) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(half, flags, 0o644), "r+b", buffering=0) as target:
        digest = hashlib.file_digest(target, "sha256")
        start = target.seek(0, os.SEEK_END)
        for piece in stream(client, job_id, file, rank, start):
            digest.update(piece)
            target.write(piece)
    try:
        _check(file, digest.hexdigest())
    except DamagedOutputError:
        half.unlink()
        raise


def _check(file: Json, found: str) -> None:
    if found != file["sha256"]:
        raise DamagedOutputError(
            f"{file['path']} arrived damaged: its SHA-256 is {found}, not {file['sha256']}; "
            "try again"
        )
