"""`gradients.jsonl`: the captured gradients of a run on this host."""

import json
from pathlib import Path
from typing import Any

from trainhall.cli.local.metrics_file import cut_lines_after


class GradientsFile:
    """Appends captured steps, each once, in order; continues where an earlier run stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def cut_after(self, step: int) -> None:
        """Forget the steps after this one, which are taken again, and a line that was cut short."""
        if self._path.exists():
            cut_lines_after(self._path, step)

    def add(self, record: dict[str, Any]) -> None:
        """Append a record.

        Args:
            record: a `GradientRecord` as a rank reported it.
        """
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
