"""The coordinator's own store of checkpoints, for jobs whose nodes share no storage.

    <data folder>/
        uploads/<job>/<checkpoint>/…        being received; not read yet
        checkpoints/<job>/<checkpoint>/…    committed: complete, verified, made durable

One rename leads from the first to the second, after every file was checked against the manifest; so
half a checkpoint is never seen, whatever happens when. All paths come from outside and are checked
before they touch the disk.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

from trainhall.cluster.errors import (
    DamagedError,
    InvalidValueError,
    NotFoundError,
    explain_full_disk,
)
from trainhall.cluster.ports import Ids
from trainhall.cluster.wire.received_file import ReceivedFile
from trainhall.training.checkpoint.format.draft import fsync_folder, make_durable_folder
from trainhall.training.checkpoint.format.errors import BadCheckpointError
from trainhall.training.checkpoint.format.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    read_manifest,
    safe_path,
    verify_files,
)
from trainhall.training.checkpoint.format.names import MANIFEST, is_removed_name, parse_name
from trainhall.training.checkpoint.format.removal import vanish

_JOB_ID = re.compile(r"[0-9a-z]{1,32}")
_MAX_PATH = 512
_MAX_PART = 255
_PART_SUFFIX = ".part"
_REMEDY = "nodes keep their checkpoints and retry the upload until there is space"


class CheckpointStore:
    def __init__(self, data_dir: Path, ids: Ids, max_file_bytes: int) -> None:
        self._uploads = data_dir / "uploads"
        self._committed = data_dir / "checkpoints"
        self._ids = ids
        self._max_file_bytes = max_file_bytes
        self._committing: dict[tuple[str, str], asyncio.Lock] = {}
        # Other work waits for these threads too: curves, what agents ship, other uploads.
        self._comparing = asyncio.Semaphore(1)

    async def put(
        self,
        job_id: str,
        name: str,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        sha256: str | None = None,
    ) -> None:
        """Receive one file of a checkpoint that is not committed yet. Repeating it is harmless.

        Raises:
            InvalidValueError: a path that does not stay within the checkpoint.
            TooLargeError: the file is beyond the limit.
            DamagedError: what came is not what `sha256` says.
            StorageFullError: the disk is full; what was received of it is gone again.
        """
        with explain_full_disk(_REMEDY):
            target = _inside(self._uploads, job_id, name, path)
            committed = self.folder(job_id, name)
            if await asyncio.to_thread(committed.is_dir) or await self._is_here(target, sha256):
                # A sender that missed the reply sends it again. A slow disk has to take it once.
                async for _ in chunks:
                    pass
                return
            limit = self._max_file_bytes if path != MANIFEST else MAX_MANIFEST_BYTES
            temporary = target.with_name(f"{self._ids.new()}{_PART_SUFFIX}")
            writer = ReceivedFile(temporary)
            try:
                await writer.receive(chunks, limit, target, sha256)
            except (FileExistsError, NotADirectoryError):
                raise InvalidValueError(
                    "path", path, "a part of it was uploaded as a file"
                ) from None
            except IsADirectoryError:
                raise InvalidValueError("path", path, "was uploaded as a folder") from None
            finally:
                if not writer.is_done:
                    await asyncio.to_thread(writer.discard)

    async def _is_here(self, file: Path, sha256: str | None) -> bool:
        """Return whether this file of an upload was received before, whole."""
        if sha256 is None or not await asyncio.to_thread(file.is_file):
            return False
        async with self._comparing:
            return await asyncio.to_thread(_is_intact, file, sha256)

    async def commit(self, job_id: str, name: str) -> None:
        """Make an upload the checkpoint that it is, if it is complete and whole. Idempotent.

        Raises:
            NotFoundError: nothing was uploaded under this name.
            DamagedError: a file is missing or not what the manifest says.
            StorageFullError: the disk is full; the upload is kept, to be committed later.
        """
        upload = _inside(self._uploads, job_id, name)
        lock = self._committing.setdefault((job_id, name), asyncio.Lock())
        try:
            async with lock:
                with explain_full_disk(_REMEDY):
                    await asyncio.to_thread(self._commit, upload, self.folder(job_id, name))
        finally:
            if not lock.locked():
                self._committing.pop((job_id, name), None)

    def has(self, job_id: str, name: str) -> bool:
        """Return whether this checkpoint is committed."""
        return self.folder(job_id, name).is_dir()

    def file(self, job_id: str, name: str, path: str) -> Path:
        """Return the path of a file of a committed checkpoint.

        Raises:
            NotFoundError: there is none.
        """
        found = _inside(self._committed, job_id, name, path)
        if not found.is_file() or found.is_symlink():
            raise NotFoundError("checkpoint file", f"{job_id}/{name}/{path}")
        return found

    async def delete(self, job_id: str, name: str) -> None:
        """Remove a checkpoint; that it is gone already is fine."""
        await asyncio.to_thread(vanish, self.folder(job_id, name))

    async def remove_job(self, job_id: str) -> None:
        """Remove all checkpoints and uploads of a job.

        Raises:
            OSError: the disk does not let them go; it may be called again.
        """
        for root in (self._uploads, self._committed):
            # A thread that finishes an upload may be at work in the folder.
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.rmtree, root / job_id)

    async def committed(self) -> set[tuple[str, str]]:
        """Return job and name of every committed checkpoint."""
        return await asyncio.to_thread(self._list_committed)

    async def sweep(self, older_than_seconds: float) -> list[str]:
        """Remove uploads not continued for so long, and what a kill left half removed."""
        return await asyncio.to_thread(self._sweep, older_than_seconds)

    def folder(self, job_id: str, name: str) -> Path:
        """Return a checkpoint's folder, committed or not."""
        return _inside(self._committed, job_id, name)

    def _commit(self, upload: Path, target: Path) -> None:
        if target.is_dir():
            shutil.rmtree(upload, ignore_errors=True)
            return
        if not upload.is_dir():
            raise NotFoundError("upload", f"{upload.parent.name}/{upload.name}")
        manifest = _whole_upload(upload)
        listed = {record.path for record in manifest.files} | {MANIFEST}
        for file in [p for p in upload.rglob("*") if p.is_file() or p.is_symlink()]:
            if file.relative_to(upload).as_posix() not in listed:
                file.unlink()
        for folder in [upload, *(p for p in upload.rglob("*") if p.is_dir())]:
            fsync_folder(folder)
        make_durable_folder(target.parent)
        upload.rename(target)
        fsync_folder(target.parent)
        fsync_folder(upload.parent)

    def _list_committed(self) -> set[tuple[str, str]]:
        folders = self._committed.glob("*/*")
        return {(f.parent.name, f.name) for f in folders if parse_name(f.name) is not None}

    def _sweep(self, older_than_seconds: float) -> list[str]:
        removed = []
        oldest = time.time() - older_than_seconds  # file times are the host's, not the port's
        for upload in self._uploads.glob("*/*"):
            try:
                times = [p.lstat().st_mtime for p in (upload, *upload.rglob("*"))]
            except FileNotFoundError:
                continue  # it is continued or committed right now
            if max(times) < oldest:
                shutil.rmtree(upload, ignore_errors=True)
                removed.append(f"{upload.parent.name}/{upload.name}")
        for half in self._committed.glob("*/*"):
            if is_removed_name(half.name):
                shutil.rmtree(half, ignore_errors=True)
        return removed


def _whole_upload(upload: Path) -> Manifest:
    """Return the manifest of an upload whose files are all there.

    Raises:
        DamagedError: they are not, or it is the manifest of another checkpoint.
    """
    try:
        manifest = read_manifest(upload)
        if problems := verify_files(upload, manifest.files):
            raise BadCheckpointError(problems)
    except BadCheckpointError as error:
        shown = "; ".join(str(problem) for problem in error.problems[:5])
        raise DamagedError(f"checkpoint {upload.name} is incomplete: {shown}") from None
    if manifest.job_id != upload.parent.name or str(manifest.name) != upload.name:
        raise DamagedError(
            f"the manifest is that of job {manifest.job_id}, {manifest.name}, "
            f"not of job {upload.parent.name}, {upload.name}"
        )
    return manifest


def _is_intact(file: Path, sha256: str) -> bool:
    """Return whether a file of an upload is intact. If so, the upload counts as continued."""
    try:
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found == sha256.lower():
            os.utime(file)
            return True
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        pass
    return False


def _inside(root: Path, job_id: str, name: str, path: str | None = None) -> Path:
    if not _JOB_ID.fullmatch(job_id):
        raise InvalidValueError("job", job_id[:80], f"{job_id[:80]!r} is not a job id")
    if parse_name(name) is None:
        raise InvalidValueError(
            "checkpoint", name[:80], f"{name[:80]!r} is not a checkpoint's name"
        )
    folder = root / job_id / name
    if path is None:
        return folder
    too_long = len(path.encode("utf-8", "surrogatepass")) > _MAX_PATH
    if too_long or any(
        len(part.encode("utf-8", "surrogatepass")) > _MAX_PART for part in path.split("/")
    ):
        raise InvalidValueError("path", path[:80], "is too long")
    if path.endswith(_PART_SUFFIX):
        raise InvalidValueError("path", path, f"may not end with {_PART_SUFFIX}")
    if path != MANIFEST:
        try:
            safe_path(path)
        except ValueError as error:
            raise InvalidValueError("path", path, str(error)) from None
    return folder / path
