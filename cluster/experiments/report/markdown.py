"""A report as Markdown. Its charts are inline SVG, which renderers of HTML in Markdown show."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from trainhall.cluster.experiments.report import content
from trainhall.cluster.experiments.report.content import Report
from trainhall.cluster.experiments.report.plots import plots

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
_BLANK = re.compile(r"\s+")


def to_markdown(report: Report) -> str:
    drawn = plots(report)
    compared = [each.text for each in report.analysis.comparisons if each.field is not None]
    sections = [
        f"# {_text(report.analysis.name)}",
        "## Summary", _table(["", ""], content.summary(report)),
        "## Findings", _list(report.analysis.findings),
        *(["## Comparisons", _list(compared)] if compared else []),
        *(["## Charts"] if drawn else []),
        *(f"{_text(title)}\n\n{svg}" for title, svg in drawn),
        *_curves(report),
        *_communication(report),
        "## Trials",
        *([_text(note)] if (note := content.note(report)) else []),
        _table(
            content.columns(report),
            [content.cells(report, row) for row in report.analysis.table],
        ),
        "## Experiment", _code("yaml", content.spec_yaml(report)),
        "## Environment", _table(["", ""], content.environment(report)),
        "## Repeat it", "Save the experiment above as `experiment.yaml`.",
        _code("sh", "\n".join(content.COMMANDS)),
    ]  # fmt: skip
    return "\n\n".join(sections) + "\n"


def _curves(report: Report) -> list[str]:
    tables = [
        f"### {_text(table.title)}\n\n{_table(table.columns, table.rows)}"
        for table in content.curve_tables(report)
    ]
    return ["## Scaling", *tables] if tables else []


def _communication(report: Report) -> list[str]:
    if (table := content.communication_table(report)) is None:
        return []
    return [
        f"## {table.title}", _text(content.COMMUNICATION_NOTE), _table(table.columns, table.rows)
    ]  # fmt: skip


def _text(text: str) -> str:
    """Return text on one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", escape(_BLANK.sub(" ", text), quote=False))


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *([_text(cell) for cell in row] for row in rows)]
    lines[0] = [_text(title) for title in titles]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)


def _code(language: str, text: str) -> str:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
