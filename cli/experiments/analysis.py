"""An analysis of an experiment as text."""

import textwrap
from collections.abc import Iterable
from typing import Any

from trainhall.cli.base import output as out
from trainhall.cli.experiments.benchmark import speed_tables
from trainhall.training.common.units import percent

_WIDTH = 100


def page(analysis: out.Json) -> str:
    """Format findings, comparisons and the importance of fields."""
    parts = [f"{out.one_line(analysis['name'])} ({analysis['experiment_id']})"]
    if has_cells(analysis):
        parts.append(speed_tables(analysis))
    parts.append(sentences(analysis["findings"]))
    if compared := [each for each in analysis["comparisons"] if each["field"] is not None]:
        parts.append("Comparisons\n" + sentences(each["text"] for each in compared))
    if fields := analysis["importance"]["fields"]:
        parts.append("Importance\n" + out.table(fields, _COLUMNS))
    return "\n\n".join(parts)


def has_cells(analysis: out.Json) -> bool:
    """Return whether it is one of a benchmark or scaling study."""
    return any("is_baseline" in row for row in analysis.get("table", ()))


def sentences(texts: Iterable[str]) -> str:
    return "\n".join(map(_item, texts))


def _item(text: str) -> str:
    # A sentence has names and reasons in it, which may hold anything.
    return textwrap.fill(
        out.one_line(text), _WIDTH, initial_indent="- ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _interval(field: dict[str, Any]) -> str:
    low, high = field["interval"]
    return f"{percent(low)} to {percent(high)}"


_COLUMNS = [
    out.Column("FIELD", lambda field: field["field"]),
    out.Column("SHARE", lambda field: percent(field["share"]), right=True),
    out.Column("95 % INTERVAL", _interval, right=True),
    out.Column("EFFECT", lambda field: "yes" if field["has_effect"] else "none shown"),
]
