"""The proof that every host of an attempt sees one and the same checkpoint folder.

A path that exists on each host proves nothing: it may be a local disk on all of them. So rank 0
writes a fresh random number into the folder, and every rank reads it back.
"""

import contextlib
import secrets
import socket
import time
from pathlib import Path

import torch.distributed as dist

from trainhall.distributed import breakable

PATIENCE_SECONDS = 10.0
"""Network file systems show a new file to other hosts late (NFS caches folders for seconds)."""


class StorageNotSharedError(RuntimeError):
    """A host does not see what another one writes under `checkpoint.path`."""


class StorageNotWritableError(RuntimeError):
    """A job's checkpoints cannot be written under its `checkpoint.path`."""


def prove_shared(
    folder: Path, group: dist.ProcessGroup, *, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Let every rank of `group` read what rank 0 writes; all ranks return or all raise.

    Raises:
        StorageNotWritableError: the folder and what the system says.
        StorageNotSharedError: naming the hosts that do not see it, and what to do.
    """
    rank = dist.get_rank(group)
    written: list[str | None] = [None, None]
    if rank == 0:
        written = _write_nonce(folder)
    nonce, error = breakable.broadcast_object(written, 0, group)
    seen = nonce is not None and _reads(folder, nonce, patience_seconds)
    blind = breakable.gather_objects(None if seen else socket.gethostname(), group)
    if rank == 0 and nonce is not None:
        with contextlib.suppress(OSError):
            _file(folder, nonce).unlink()
    if error is not None:
        raise StorageNotWritableError(
            f"checkpoint.path: rank 0 cannot write in {folder}: {error}; name a folder in which "
            "the agents' user may write (`trainhall doctor --path` tries one), or leave "
            "checkpoint.path out to keep checkpoints with the coordinator"
        )
    hosts = sorted({host for host in blind if host is not None})
    if hosts:
        raise StorageNotSharedError(
            f"checkpoint.path: {', '.join(hosts)} does not see what rank 0 writes in {folder}; "
            "mount the same storage there on every host, or leave checkpoint.path out to keep "
            "checkpoints with the coordinator"
        )


def _write_nonce(folder: Path) -> list[str | None]:
    nonce = secrets.token_hex(16)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _file(folder, nonce).write_text(nonce)
    except OSError as error:
        return [None, error.strerror or str(error)]
    return [nonce, None]


def _reads(folder: Path, nonce: str, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):
            if _file(folder, nonce).read_text() == nonce:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def _file(folder: Path, nonce: str) -> Path:
    return folder / f".nonce-{nonce}"
