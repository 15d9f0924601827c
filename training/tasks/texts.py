"""Text files as one long row of bytes."""

import glob
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainhall.training.common.sample_order import sample_words
from trainhall.training.tasks.base import BadDataError

_MAPPED = 1 << 26
"""Bytes from which on a text that is one file is mapped: the ranks of a host share its pages."""
_LOOKED_AT = 1 << 16
"""Bytes in which a NUL byte gives a binary file away."""


class Windows:
    """Pieces of `context` + 1 bytes, one after the other: inputs [B, T] and what follows each.

    With a `seed`, where the first one begins is drawn for every epoch, so that no epoch cuts the
    text at the same places.
    """

    def __init__(self, text: Tensor, context: int, seed: int | None = None) -> None:
        self._text = text
        self._context = context
        self._seed = seed
        self._start = 0
        # As many as fit wherever the first one begins.
        spare = context - 1 if seed is not None else 0
        self._number = max(0, (len(text) - 1 - spare) // context)

    def __len__(self) -> int:
        return self._number

    def set_epoch(self, epoch: int) -> None:
        if self._seed is not None:
            word = sample_words(self._seed, epoch, np.zeros(1, dtype=np.int64), 1)[0, 0]
            self._start = int(word % np.uint64(self._context))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        starts_B1 = (self._start + indices * self._context)[:, None]
        pieces = self._text[starts_B1 + torch.arange(self._context + 1)].long()
        return pieces[:, :-1], pieces[:, 1:]


def read_texts(files: Sequence[str] | None) -> Tensor:
    """Read the bytes of all files in order, as uint8 [N]; by default the standard library's
    sources.

    One large file stays where it is and is read as it is needed. Anything else is copied, so that
    it may change meanwhile.

    Raises:
        BadDataError: a file is missing, empty, binary or unreadable, or changes meanwhile.
    """
    if files is None:
        found = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        paths = [file for file in found if file.stat().st_size]
    else:
        paths = [file for name in files for file in _texts_of(name)]
    sizes = [file.stat().st_size for file in paths]
    if len(paths) == 1 and sizes[0] >= _MAPPED:
        return torch.from_numpy(_mapped(paths[0]))
    text = np.empty(sum(sizes), dtype=np.uint8)
    end = 0
    for file, size in zip(paths, sizes, strict=True):
        _read_into(text[end : end + size], file)
        end += size
    return torch.from_numpy(text)


def _texts_of(name: str) -> list[Path]:
    """Return the file, the text files of the folder, or those that fit the pattern."""
    path = Path(name)
    if path.is_dir():
        found = [file for file in _files_below(path) if _is_text(file)]
        if not found:
            raise BadDataError(f"task.params.files: the folder {path} holds no text files")
        return found
    paths = [path] if path.exists() else sorted(map(Path, glob.glob(name, recursive=True)))
    paths = [file for file in paths if file.is_file()]
    if not paths:
        what = "fits" if glob.has_magic(name) else "is called"
        raise BadDataError(f"task.params.files: no file on this host {what} {name}")
    for file in paths:
        if not _is_text(file):
            raise BadDataError(f"task.params.files: {file} {_why_no_text(file)}")
    return paths


def _files_below(folder: Path) -> list[Path]:
    return sorted(
        file for file in folder.rglob("*")
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(folder).parts)
    )  # fmt: skip


def _is_text(file: Path) -> bool:
    """Return whether a file is neither empty nor binary, by its beginning."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LOOKED_AT)
    except OSError as error:
        raise _unreadable(file, error) from error
    return bool(data) and b"\0" not in data


def _mapped(file: Path) -> np.ndarray[Any, Any]:
    try:
        # Private, since torch wants what it may write to; nobody does, so that no page is copied.
        return np.memmap(file, dtype=np.uint8, mode="c")
    except OSError as error:
        raise _unreadable(file, error) from error


def _read_into(place: np.ndarray[Any, Any], file: Path) -> None:
    """Read a file to where it belongs, so that a corpus is in memory once."""
    try:
        with file.open("rb", buffering=0) as opened:
            left = place.data
            while left and (got := opened.readinto(left)):
                left = left[got:]
    except OSError as error:
        raise _unreadable(file, error) from error
    if left:
        raise BadDataError(f"task.params.files: {file} became shorter while it was read")


def _unreadable(file: Path, error: OSError) -> BadDataError:
    return BadDataError(f"task.params.files: {file} can't be read: {error.strerror}")


def _why_no_text(file: Path) -> str:
    if file.stat().st_size == 0:
        return "is empty; leave it out"
    return "holds NUL bytes, so it is not UTF-8 text; convert it or leave it out"
