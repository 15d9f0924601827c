"""NCCL's flight record: the last collectives of a rank, which torch writes when it is asked to.

Torch adds the rank to each path that it is given, and `.pipe` to that of the named pipe; whatever
is written there makes it write the record. The record is pickled: `torchfrtrace` reads it.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainhall.cluster.agent.shim import folder_ipc
from trainhall.training.link.folder import AttemptFolder

ENTRIES = 2000
"""Collectives that a rank remembers, about 1 KB each."""
WRITE_SECONDS = 2.0
_POLL_SECONDS = 0.05


def environment(folder: AttemptFolder, rank: int) -> dict[str, str]:
    """Return the environment that has a GPU rank record its collectives and listen to the pipe."""
    return {
        "TORCH_FR_BUFFER_SIZE": str(ENTRIES),
        "TORCH_FR_DUMP_TEMP_FILE": _without_rank(record_path(folder, rank), rank),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": _without_rank(folder.rank(rank) / f"nccl-{rank}", rank),
    }


def record_path(folder: AttemptFolder, rank: int) -> Path:
    return folder.rank(rank) / f"nccl-record-{rank}"


def save(folder: AttemptFolder, ranks: Iterable[int]) -> list[int]:
    """Ask ranks for their records; return those that wrote within `WRITE_SECONDS`."""
    asked = [rank for rank in ranks if _ask(folder.rank(rank) / f"nccl-{rank}.pipe")]
    until = time.monotonic() + WRITE_SECONDS
    while time.monotonic() < until and not all(record_path(folder, r).exists() for r in asked):
        time.sleep(_POLL_SECONDS)
    return [rank for rank in asked if record_path(folder, rank).exists()]


def _ask(pipe: Path) -> bool:
    """Return whether a rank was asked: no one listens to the pipe of a CPU rank, or of one that has
    not begun."""
    with suppress(OSError):  # a record is worth less than the shim
        return folder_ipc.write_to_pipe(pipe, b"1\n")
    return False


def _without_rank(path: Path, rank: int) -> str:
    return str(path).removesuffix(str(rank))
