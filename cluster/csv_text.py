"""Tables as CSV."""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(lines: Iterable[Iterable[Any]]) -> str:
    """Write lines of values; lists and objects are JSON, and None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow(map(_cell, line))
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A spreadsheet would compute it.
    return f"'{text}" if text.startswith(_FORMULA) else text
