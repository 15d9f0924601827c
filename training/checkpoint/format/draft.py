"""Writing a checkpoint so that it is there as a whole or not at all. Free of torch.

    draft = Draft.create(folder, token, step)     .partial-…/ is made
    draft.write("state.json", [data])             written, hashed and fsynced
    draft.commit(manifest)                        manifest and folder fsynced; renamed to its name;
                                                  the parent folder fsynced

An interruption leaves a temporary folder, which no reader opens.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from trainhall.training.checkpoint.format.manifest import (
    FileRecord,
    Manifest,
    encode_manifest,
    safe_path,
)
from trainhall.training.checkpoint.format.names import MANIFEST, CheckpointName, PartialName
from trainhall.training.fencing import FencingToken

# Larger pieces are hashed and written a block at a time: the block is still in the cache for the
# second of the two, and the interpreter lock is never held for long.
_BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Committed:
    """A checkpoint that is complete and durable."""

    name: str
    step: int
    size: int
    """Bytes of all files, the manifest included."""
    files: Sequence[FileRecord]
    """Every file, the manifest last: whoever copies them in this order ends with a whole one."""
    metrics: dict[str, Any]
    path: Path

    @classmethod
    def of(cls, path: Path, manifest: Manifest, files: Sequence[FileRecord]) -> Self:
        """Return the checkpoint in a folder.

        Args:
            files: every file, the manifest last.
        """
        return cls(
            name=path.name,
            step=manifest.step,
            size=sum(file.size for file in files),
            files=files,
            metrics=dict(manifest.metrics),
            path=path,
        )

    def event(self) -> dict[str, Any]:
        """Return the data of a rank event of kind `checkpoint`."""
        return {
            "name": self.name,
            "step": self.step,
            "size": self.size,
            "files": [file.model_dump() for file in self.files],
            "metrics": self.metrics,
        }


@dataclass
class Draft:
    """A checkpoint that is being written in its temporary folder."""

    path: Path
    """The temporary folder."""
    name: CheckpointName
    files: list[FileRecord] = field(default_factory=list)
    """Records of the files that this process has written."""

    @classmethod
    def create(cls, folder: Path, token: FencingToken, step: int) -> Self:
        """Make the temporary folder, and `folder` if it is missing.

        Raises:
            FileExistsError: the step was already committed under this token; nothing is replaced.
            OSError: the disk does not take it.
        """
        draft = cls.join(folder, token, step)
        _refuse_existing(draft.target)
        make_durable_folder(folder)
        try:
            draft.path.mkdir()
        except FileExistsError:
            # Only this token writes under this name, and it is here: an earlier try that failed
            # and could not clean up.
            shutil.rmtree(draft.path)
            draft.path.mkdir()
        return draft

    @classmethod
    def join(cls, folder: Path, token: FencingToken, step: int) -> Self:
        """Join the draft that rank 0 created, for another rank to write its files into."""
        partial = PartialName.of(token, step)
        return cls(folder / str(partial), partial.name)

    @property
    def target(self) -> Path:
        """The checkpoint's folder once it is committed."""
        return self.path.parent / str(self.name)

    def write(self, path: str, pieces: Iterable[Any]) -> FileRecord:
        """Write a file from pieces of bytes-like data, durably, and record its size and hash."""
        record = self._write(safe_path(path), pieces)
        self.files.append(record)
        return record

    def commit(
        self, manifest: Manifest, holding: AbstractContextManager[None] | None = None
    ) -> Committed:
        """Make the checkpoint appear under its name, complete and durable.

        Args:
            holding: held while it gets its name; an exception on entering it keeps it from that.

        Raises:
            FileExistsError: there is a folder of that name; it is left as it is.
        """
        if manifest.name != self.name:
            raise ValueError(f"the manifest of {manifest.name} does not belong to {self.name}")
        last = self._write(MANIFEST, [encode_manifest(manifest)])
        fsync_folder(self.path)
        with holding or nullcontext():
            _refuse_existing(self.target)
            self.path.rename(self.target)
        fsync_folder(self.path.parent)
        return Committed.of(self.target, manifest, [*manifest.files, last])

    def abandon(self) -> None:
        """Remove the temporary folder; best effort, since a stale one does no harm."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, path: str, pieces: Iterable[Any]) -> FileRecord:
        target = self.path / path
        digest, size = hashlib.sha256(), 0
        with target.open("xb", buffering=_BLOCK_BYTES) as file:
            for piece in pieces:
                view = memoryview(piece).cast("B")
                for start in range(0, len(view), _BLOCK_BYTES):
                    block = view[start : start + _BLOCK_BYTES]
                    digest.update(block)
                    file.write(block)
                size += len(view)
            file.flush()
            os.fsync(file.fileno())
        return FileRecord(path=path, size=size, sha256=digest.hexdigest())


def make_durable_folder(folder: Path) -> None:
    """Make a folder and its parents, each entry fsynced, if they are missing."""
    if folder.is_dir():
        return
    make_durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


def fsync_folder(folder: Path) -> None:
    """Make the entries of a folder durable: new names, renames and removals."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_existing(target: Path) -> None:
    # A rename would silently replace an empty folder, and only an empty one.
    if os.path.lexists(target):
        raise FileExistsError(
            errno.EEXIST, "a checkpoint is never overwritten, but there is one already", str(target)
        )
