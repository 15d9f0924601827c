"""`metrics.jsonl`: one JSON object a finished step, written during training.

    {"step": 1, "loss": 2.31, "learning_rate": 0.001, …}

A step's evaluation is measured after its other metrics and stands on the same line, so a line is
written once the next step has begun, or at the end. NaN and infinity are null: JSON has none.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainhall.cli.base.errors import CliError
from trainhall.training.hash_chain.chain import DIGESTS, as_text

MEASURED = ("loss", "gradient_norm")
"""Metrics of a step that are part of the chain."""


def cut_lines_after(path: Path, step: int) -> None:
    """Cut off a file of JSON objects behind the last whole line of this step or an earlier one."""
    if not path.exists():
        return
    kept = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or _step_of(line, path) > step:
                break
            kept += len(line)
    os.truncate(path, kept)


def _step_of(line: bytes, path: Path) -> int:
    """Return the step of a line of a file.

    Raises:
        CliError: the file is damaged.
    """
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        raise CliError(
            f"{path} is damaged: a line in it is not a step; remove the file to resume without it"
        ) from None


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


class MetricsFile:
    """Appends steps to the file, each once, in order; continues where an earlier run stopped.

    Args:
        chain: a file beside it for a reproducible job's chain.
    """

    def __init__(self, path: Path, chain: "ChainFile | None" = None) -> None:
        self._path = path
        self._chain = chain
        self._open: dict[str, float | None] = {}
        self._open_step = 0
        self.last: dict[str, float] = {}
        """The newest value of every series."""
        self.step = 0
        """The newest step that is known, on file or not."""
        self._written = self._repair()
        self.step = self._written
        self._file = path.open("a", encoding="utf-8")

    def _repair(self) -> int:
        """Cut off a line that a kill left half-written; the last whole one's step."""
        if not self._path.exists():
            return 0
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(self._path, whole)
        lines = data[:whole].splitlines()
        return _step_of(lines[-1], self._path) if lines else 0

    def cut_after(self, step: int) -> None:
        """Delete the steps after this one: training resumes from there and repeats them."""
        if self._chain is not None:
            self._chain.cut_after(step)
        if self._open_step <= step:
            self._write_open()
        self._open, self._open_step = {}, 0
        if self._written > step:
            self._file.close()
            cut_lines_after(self._path, step)
            self._file = self._path.open("a", encoding="utf-8")
            self._written = min(self._written, step)
        self.step = step

    def add(self, steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
        """Take job-wide points; steps that are on file already are left as they are."""
        if self._chain is not None:
            self._chain.add(steps, columns)
        self._add(steps, {n: c for n, c in columns.items() if n not in DIGESTS})

    def _add(self, steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
        if not columns:
            return
        for row, step in enumerate(steps):
            values = {name: float(column[row]) for name, column in columns.items()}
            self.last |= values
            if step <= self._written:
                continue
            if step != self._open_step:
                self._write_open()
                self._open_step = int(step)
                self.step = max(self.step, self._open_step)
            self._open |= {n: v if math.isfinite(v) else None for n, v in values.items()}
        self._file.flush()

    def _write_open(self) -> None:
        if self._open:
            self._file.write(self._line(self._open_step, self._open) + "\n")
            self._written = self._open_step
        self._open = {}

    def _line(self, step: int, values: Mapping[str, float | None]) -> str:
        return json.dumps({"step": step, **values})

    def close(self) -> None:
        """Write the last step and close."""
        self._write_open()
        self._file.close()
        if self._chain is not None:
            self._chain.close()


class ChainFile(MetricsFile):
    """`chain.jsonl`: a line for each step, with the chain's digests in hexadecimal.

    {"step": 1, "loss": 2.31, "gradient_norm": 0.42, "link": "5b1…", "samples": "03f…"}

    Steps whose checkpoint was saved also have `weights`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._measured: dict[int, dict[str, float]] = {}

    def add(self, steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> None:
        """Take job-wide points; a step's digests come after its other metrics."""
        digests = {name: column for name, column in columns.items() if name in DIGESTS}
        if not digests:
            rows = zip(*(columns.get(name, ()) for name in MEASURED), strict=True)
            measured = [dict(zip(MEASURED, row, strict=True)) for row in rows]
            self._measured = dict(zip(steps, measured, strict=False))
            return
        for row, step in enumerate(steps):
            values = {n: (v,) for n, v in self._measured.pop(step, {}).items()}
            self._add([step], values | {name: (column[row],) for name, column in digests.items()})

    def _line(self, step: int, values: Mapping[str, float | None]) -> str:
        record: dict[str, float | str | None] = {"step": step}
        for name, value in values.items():
            if name in DIGESTS and value is not None:
                record[DIGESTS[name]] = as_text(value)
            else:
                record[name] = value
        return json.dumps(record)
