"""`gradients.jsonl`: the captured gradients of a run on this host."""

import json
import os
from pathlib import Path
from typing import Any


class GradientsFile:
    """Appends captured steps, each once, in order; continues where an earlier run stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def cut_after(self, step: int) -> None:
        """Forget the steps after this one, which are taken again, and a line that was cut short."""
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        kept = 0
        for line in lines:
            if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                break
            kept += len(line)
        os.truncate(self._path, kept)

    def add(self, record: dict[str, Any]) -> None:
        """Append a record.

        Args:
            record: a `GradientRecord` as a rank reported it.
        """
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
