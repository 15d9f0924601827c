"""Files that a script logs beside its metrics: images, tables, histograms, and any other file.

All are outputs of the job (docs/outputs.md): they are written to its outputs folder, and collected
from there like any other file. What belongs to a step is `media/NAME/STEP.png` or `.json`.
"""

import importlib
import json
import math
import os
import shutil
import struct
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from trainhall.training.event_log import EventLogger

log = EventLogger(__name__)

FOLDER_VARIABLE = "TRAINHALL_OUTPUTS"
OUTSIDE = "outputs"
"""Outputs folder outside Trainhall, below the current folder."""
MEDIA = "media"
MAX_NAME = 200
MAX_ROWS = 10_000
BINS = 64
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
"""PNG's color types by the number of channels: gray, RGB, RGBA."""


class OutputFolder:
    """The folder for outputs of this process's rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._warned = False

    @property
    def path(self) -> Path:
        """Absolute."""
        return Path(os.environ.get(FOLDER_VARIABLE) or OUTSIDE).absolute()

    def add_media(self, name: str, step: int, content: bytes, suffix: str) -> None:
        """Write the media of a step; an older version of the same step is replaced.

        Ranks other than 0 have a folder of their own below that of the name.

        Raises:
            ValueError: the name cannot be that of a folder.
        """
        folder = PurePosixPath(MEDIA) / _checked_name(name)
        if self._rank:
            folder /= f"rank-{self._rank}"
        target = self.path / folder / f"{step}.{suffix}"
        try:
            _write(target, content)
        except OSError as error:
            self._warn(target, error)

    def add(self, path: Path, name: str | None) -> None:
        """Copy a file, or all files of a folder, to the outputs.

        Args:
            name: below the outputs folder; None: the last part of the path.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the name cannot be that of a file.
        """
        if not path.exists():
            raise FileNotFoundError(f"log_artifact: there is no file {str(path)!r}")
        if name is None and path.resolve().is_relative_to(self.path.resolve()):
            return  # an output already
        target = self.path / _checked_name(path.absolute().name if name is None else name)
        try:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    _copy(file, target / file.relative_to(path))
        except OSError as error:
            self._warn(target, error)

    def _warn(self, target: Path, error: OSError) -> None:
        # A full disk is no reason to stop training.
        if not self._warned:
            log.warning("output_not_written", path=str(target), error=error.strerror or str(error))
        self._warned = True


def png_of(value: Any) -> bytes:
    """Return an image as PNG.

    Args:
        value: a PIL image; or an array or tensor of the shape (H, W), (H, W, C) or (C, H, W) with
            1, 3 or 4 channels C (gray, RGB, RGBA): integers from 0 to 255, or floats from 0 to 1,
            beyond which they are clipped.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if hasattr(value, "getbands"):  # a PIL image
        content = BytesIO()
        kept = value if value.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else None
        (kept or value.convert("RGB")).save(content, format="PNG")
        return content.getvalue()
    pixels = _pixels(value)
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each without a filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 4)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _pixels(value: Any) -> Any:
    """Return an image as a uint8 array of the shape (H, W, C)."""
    np, pixels = importlib.import_module("numpy"), _array(value)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3 and pixels.shape[2] not in _COLOR_TYPES and pixels.shape[0] in _COLOR_TYPES:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in _COLOR_TYPES or 0 in pixels.shape:
        raise ValueError(
            "an image has the shape (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, not "
            f"{tuple(np.shape(value))}"
        )
    if pixels.dtype.kind == "f":
        pixels = np.rint(np.clip(np.nan_to_num(pixels), 0, 1) * 255)
    elif pixels.dtype.kind == "b":
        pixels = pixels * 255
    elif pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
        raise ValueError("an image's values are integers from 0 to 255, or floats from 0 to 1")
    return pixels.astype(np.uint8)


def png_of_figure(figure: Any) -> bytes:
    """Return a matplotlib figure, or that of axes, as PNG.

    Raises:
        TypeError: it is none.
    """
    figure = getattr(figure, "figure", figure)
    if not hasattr(figure, "savefig"):
        raise TypeError(f"a figure is one of matplotlib, not {type(figure).__name__}")
    content = BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight")
    return content.getvalue()


def table_json(value: Any) -> bytes:
    """Return a table as JSON: `{"kind": "table", "columns": [...], "rows": [[...], ...]}`.

    Args:
        value: columns by their names, rows as mappings, or a data frame of pandas or polars.

    Raises:
        TypeError, ValueError: it is something else, or has more than 10,000 rows.
    """
    columns, rows = _table(value)
    if len(rows) > MAX_ROWS:
        raise ValueError(
            f"a table has at most {MAX_ROWS:,} rows, not {len(rows):,}; write a CSV file and give "
            "it to log_artifact"
        )
    cells = [[_cell(each) for each in row] for row in rows]
    return _json({"kind": "table", "columns": columns, "rows": cells})


def _table(value: Any) -> tuple[list[str], Sequence[Sequence[Any]]]:
    if hasattr(value, "columns") and hasattr(value, "__getitem__"):  # a data frame
        value = {str(name): list(value[name]) for name in value.columns}
    if isinstance(value, Mapping):
        columns = {str(name): list(cells) for name, cells in value.items()}
        if len({len(cells) for cells in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(cells)}" for name, cells in columns.items())
            raise ValueError(f"a table's columns are of one length, not {sizes}")
        return list(columns), list(zip(*columns.values(), strict=True))
    rows = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(
            "a table is a dict of columns, a list of dicts or a data frame, not "
            f"{type(value).__name__}"
        )
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    by_name = [{str(name): cell for name, cell in row.items()} for row in rows]
    return names, [[row.get(name) for name in names] for row in by_name]


def _cell(value: Any) -> str | int | float | bool | None:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # of numpy, or a 0-d tensor
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def histogram_json(value: Any, bins: int = BINS) -> bytes:
    """Return the histogram of numbers as JSON: `{"kind": "histogram", "counts": [...], "edges":
    [...], "nonfinite": 0}`, with one edge more than counts.

    Args:
        value: numbers in a list, an array or a tensor of any shape.

    Raises:
        TypeError, ValueError: there are none.
    """
    np, numbers = importlib.import_module("numpy"), _array(value).ravel()
    if numbers.dtype.kind not in "fiub" or numbers.size == 0:
        raise ValueError("a histogram takes at least one number, and nothing but numbers")
    numbers = numbers.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(finite, bins)
    return _json(
        {
            "kind": "histogram", "counts": counts.tolist(), "edges": edges.tolist(),
            "nonfinite": numbers.size - finite.size,
        }
    )  # fmt: skip


def _array(value: Any) -> Any:
    """Return a numpy array of anything that is like one, a tensor on a GPU included."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # which numpy has not
            value = value.float()
    return importlib.import_module("numpy").asarray(value)


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _checked_name(name: str) -> PurePosixPath:
    """Return a name that stays below the outputs folder.

    Raises:
        ValueError: it is none.
    """
    good = isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
    if not good or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(
            f"a name has 1 to {MAX_NAME} printable characters, with / between folders and neither "
            f"`.` nor `..` among them, as train/samples; {name!r} is none"
        )
    return PurePosixPath(name)


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    half = _half(target)
    try:
        half.write_bytes(content)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    half = _half(target)
    try:
        shutil.copyfile(file, half)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _half(target: Path) -> Path:
    """Return the name of a file until it is whole, another one for each thread."""
    return target.with_name(f".{os.getpid()}-{threading.get_ident()}.part")
