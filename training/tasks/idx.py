"""Finding and checking MNIST's IDX files before they are read.

A file is big-endian: two zero bytes, the type (8: bytes), the number of dimensions, each dimension
as u32, then the values (http://yann.lecun.com/exdb/mnist).
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, cast

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


def unpack_checked(source: Path, target: Path, dimensions: int) -> tuple[int, ...]:
    """Put a file at `target`, unpacked or as a link, once its header fits it; its dimensions.

    Raises:
        BadDataError: it is not an IDX file of so many dimensions of bytes, or is cut short.
    """
    try:
        if source.suffix != ".gz":
            with source.open("rb") as file:
                shape = _header(source, file, dimensions)
            size = source.stat().st_size - _header_size(dimensions)
            _check_size(source, shape, size)
            target.symlink_to(source.resolve())
            return shape
        with gzip.open(source) as packed, target.open("wb") as plain:
            shape = _header(source, cast("IO[bytes]", packed), dimensions)
            packed.seek(0)
            # A byte more shows that it is too long; how much more there would be does not matter.
            _copy(cast("IO[bytes]", packed), plain, _header_size(dimensions) + math.prod(shape) + 1)
        _check_size(source, shape, target.stat().st_size - _header_size(dimensions))
        return shape
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadDataError(
            f"{source} is not a complete gzip file ({error}); download it again"
        ) from error
    except OSError as error:
        raise BadDataError(f"{source} can't be read: {error.strerror or error}") from error


def _copy(source: IO[bytes], target: IO[bytes], limit: int) -> None:
    """Copy at most so many bytes."""
    while limit > 0 and (block := source.read(min(limit, _BLOCK))):
        target.write(block)
        limit -= len(block)


def _header(path: Path, file: IO[bytes], dimensions: int) -> tuple[int, ...]:
    data = file.read(_header_size(dimensions))
    expected = bytes([0, 0, _TYPE_BYTES, dimensions])
    if data[:4] != expected:
        found = data[:4].hex(" ") or "nothing"
        raise BadDataError(
            f"{path} is not an IDX file of {dimensions}-dimensional bytes: it begins with {found}, "
            f"not {expected.hex(' ')}; fetch it again"
        )
    if len(data) < _header_size(dimensions):
        raise BadDataError(f"{path} ends within its header; fetch it again")
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, len(data), 4))
    if math.prod(shape) > MAX_VALUES:
        raise BadDataError(f"{path} claims {'×'.join(map(str, shape))} values; fetch it again")
    return shape


def _header_size(dimensions: int) -> int:
    return 4 + 4 * dimensions


def _check_size(path: Path, shape: tuple[int, ...], size: int) -> None:
    expected = math.prod(shape)
    if size != expected:
        what, found = ("cut short", f"{size:,}") if size < expected else ("too long", "more")
        raise BadDataError(
            f"{path} is {what}: its header says {'×'.join(map(str, shape))} = {expected:,} bytes "
            f"of values, and it has {found}; fetch it again"
        )
