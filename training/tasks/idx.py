"""Finding, checking and reading MNIST's IDX files.

A file is big-endian: two zero bytes, the type (8: bytes), the number of dimensions, each dimension
as u32, then the values (http://yann.lecun.com/exdb/mnist).
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from trainhall.training.tasks.base import BadDataError

_TYPE_BYTES = 8
_BLOCK = 1 << 20
MAX_VALUES = 1 << 33
"""Bytes of values in one file; a header that claims more is damaged."""


def find_files(root: Path, name: str, files: tuple[str, ...]) -> dict[str, Path]:
    """Find each of `files` below `root`, plain or with `.gz`: in `name/raw`, `raw` or itself.

    Raises:
        BadDataError: one is nowhere.
    """
    folders = [f for f in (root / name / "raw", root / "raw", root) if f.is_dir()]
    for folder in folders:
        found = {file: path for file in files if (path := _plain_or_packed(folder / file))}
        if len(found) == len(files):
            return found
        if found:
            missing = next(file for file in files if file not in found)
            raise BadDataError(f"{folder} does not have {missing} (or {missing}.gz)")
    looked = ", ".join(map(str, folders))
    raise BadDataError(
        f"task.params.root: there are no {name} files below {root}; looked for {files[0]} (or "
        f"{files[0]}.gz) in {looked}; give the folder that holds {name}/raw, or set "
        "task.params.download"
    )


def _plain_or_packed(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def read(path: Path, dimensions: int) -> Tensor:
    """Read a file, packed or not, of so many dimensions of bytes.

    Raises:
        BadDataError: it is not an IDX file of so many dimensions of bytes, or is cut short.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _header(path, file, dimensions)
            size, values = math.prod(shape), bytearray()
            # How much more there is than the header says does not matter.
            while len(values) <= size and (block := file.read(_BLOCK)):
                values += block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadDataError(
            f"{path} is not a complete gzip file ({error}); download it again"
        ) from error
    except OSError as error:
        raise BadDataError(f"{path} can't be read: {error.strerror or error}") from error
    if len(values) != size:
        what, found = (
            ("cut short", f"{len(values):,}") if len(values) < size else ("too long", "more")
        )
        raise BadDataError(
            f"{path} is {what}: its header says {'×'.join(map(str, shape))} = {size:,} bytes of "
            f"values, and it has {found}; fetch it again"
        )
    return torch.from_numpy(np.frombuffer(values, dtype=np.uint8).reshape(shape))


def _header(path: Path, file: "BinaryIO | gzip.GzipFile", dimensions: int) -> tuple[int, ...]:
    size = 4 + 4 * dimensions
    data = file.read(size)
    expected = bytes([0, 0, _TYPE_BYTES, dimensions])
    if data[:4] != expected:
        found = data[:4].hex(" ") or "nothing"
        raise BadDataError(
            f"{path} is not an IDX file of {dimensions}-dimensional bytes: it begins with {found}, "
            f"not {expected.hex(' ')}; fetch it again"
        )
    if len(data) < size:
        raise BadDataError(f"{path} ends within its header; fetch it again")
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, len(data), 4))
    if math.prod(shape) > MAX_VALUES:
        raise BadDataError(f"{path} claims {'×'.join(map(str, shape))} values; fetch it again")
    return shape
