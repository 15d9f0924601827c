"""One safetensors file with the weights of a checkpoint, for PyTorch without Trainhall.

    python -m trainhall.training.checkpoint.export FOLDER FILE

It prints what it wrote as a line of JSON; an error is one line on standard error, with exit code 1.
`trainhall ckpt export` starts this, since the command line needs no torch.
"""

import argparse
import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from trainhall.training.checkpoint.format.draft import fsync_folder
from trainhall.training.checkpoint.format.errors import CheckpointError, NoModelError
from trainhall.training.checkpoint.header import encode_header
from trainhall.training.checkpoint.state import unescaped
from trainhall.training.checkpoint.storage import SafetensorsReader

MODEL = ("model/", "state/model/")
"""Keys of the weights in a task's checkpoint, and in one that a script saved."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Error codes of file systems without hard links."""


def export(folder: Path, file: Path) -> dict[str, Any]:
    """Write the weights of a checkpoint, whole and under the names of the plain model.

    Every byte of the checkpoint is verified first. Tensors are read one after the other, so memory
    need hold the largest alone. Tied weights are written under each of their names, as
    `load_state_dict` asks for them. The file appears at once, complete, or not at all.

    Returns:
        `{path, tensors, size, sha256, job_id, step}`: how many tensors, and bytes of the file.

    Raises:
        FileExistsError: there is such a file; it is left as it is.
        BadCheckpointError: the checkpoint is damaged, incomplete or not understood.
        NoModelError: there are no weights in it.
        OSError: the disk does not take it.
    """
    if os.path.lexists(file):
        raise FileExistsError(f"{file} exists already; nothing is overwritten")
    reader = SafetensorsReader(folder)
    manifest, entries = reader.manifest, _weights(reader)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.part")
    digest, size = hashlib.sha256(), 0
    try:
        with temporary.open("xb") as output:
            for piece in _encoded(reader, entries):
                digest.update(piece)
                size += output.write(piece)
            output.flush()
            os.fsync(output.fileno())
        _publish(temporary, file)
        fsync_folder(file.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return {
        "path": str(file),
        "tensors": len(entries),
        "size": size,
        "sha256": digest.hexdigest(),
        "job_id": manifest.job_id,
        "step": manifest.step,
    }


Entries = dict[str, tuple[str, TensorStorageMetadata]]
"""By the name in the plain model: the name in the checkpoint, and what is stored there."""


def _publish(temporary: Path, file: Path) -> None:
    """Give a whole file its name.

    Unlike a rename, a link never replaces a file that was created meanwhile; on a file system
    without links a check just before the rename has to do.

    Raises:
        FileExistsError: there is one by now.
    """
    try:
        os.link(temporary, file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(file):
            raise FileExistsError(f"{file} exists already; nothing is overwritten") from None
        temporary.rename(file)


def _weights(reader: SafetensorsReader) -> Entries:
    stored = reader.index.metadata.state_dict_metadata
    for prefix in MODEL:
        found: Entries = {
            _plain(name.removeprefix(prefix)): (name, entry)
            for name, entry in stored.items()
            if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
        }
        if found:
            return found
    parts = sorted({name.split("/")[1] for name in stored if name.startswith("state/")})
    holds = f"it holds {', '.join(parts[:8])}" if parts else "it holds no tensors"
    raise NoModelError(
        f"{reader.folder.name} has no weights under the key 'model' of the script's state; {holds}"
    )


def _plain(name: str) -> str:
    """Return a key as it was before names were joined; dots in it show a state of nested dicts."""
    return ".".join(map(unescaped, name.split("/")))


def _encoded(reader: SafetensorsReader, entries: Entries) -> Iterator[Any]:
    """Yield the bytes of the file."""
    manifest = reader.manifest
    about = {"format": "pt", "job_id": manifest.job_id, "step": str(manifest.step)}
    forms = {name: (e.properties.dtype, e.size) for name, (_, e) in entries.items()}
    order, header = encode_header(forms, about)
    yield header
    for name in order:
        yield _read(reader, *entries[name]).reshape(-1).view(torch.uint8).numpy()


def _read(reader: SafetensorsReader, name: str, entry: TensorStorageMetadata) -> Tensor:
    """Read one tensor, put together from what the ranks wrote of it."""
    whole = torch.empty(entry.size, dtype=entry.properties.dtype)
    reader.read({name: whole})
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainhall.training.checkpoint.export")
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    try:
        done = export(options.folder, options.file)
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(
            f"{error}\n" if error.errno is None else f"{options.file}: {error.strerror}\n"
        )
        return 1
    sys.stdout.write(json.dumps(done) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
