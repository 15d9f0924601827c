"""A report as one HTML file, which loads nothing."""

from collections.abc import Sequence
from html import escape

from trainhall.cluster.experiments.report import content
from trainhall.cluster.experiments.report.content import Report
from trainhall.cluster.experiments.report.plots import plots
from trainhall.cluster.experiments.report.svg import Width

_STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #5a6470;
  --edge: #0005 }
@media (prefers-color-scheme: dark) { :root { --dim: #98a2ad; --edge: #fff4 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
h1, dd, li, figcaption { overflow-wrap: anywhere }
.sub, figcaption { color: var(--dim) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 }
dt { color: var(--dim) } dd { margin: 0 }
ul { padding-left: 1.2rem } li { margin: .25rem 0 }
figure { margin: 1rem 0; padding: .75rem; border: 1px solid var(--line); border-radius: .5rem }
figcaption { font-size: .9rem; margin-bottom: .25rem }
/* A chart has a form of its own for a phone: scaled down, its labels would be illegible. */
.narrow { display: none }
@media screen and (max-width: 40rem) { .narrow { display: block } .wide { display: none } }
/* As wide as the window where a table needs it, and scrolled beyond that: a shadow lies at an edge
   beyond which there is more, and at its own end a cover scrolls over it. */
.table { overflow-x: auto; width: fit-content; min-width: 100%; max-width: calc(100vw - 2rem);
  position: relative; left: 50%; transform: translateX(-50%);
  background:
    linear-gradient(to right, Canvas 35%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, Canvas 35%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--edge), transparent) left 1px top 1px /
      1rem calc(100% - 2px) no-repeat scroll,
    linear-gradient(to left, var(--edge), transparent) right 1px top 1px /
      1rem calc(100% - 2px) no-repeat scroll }
table { border-collapse: collapse; width: max-content; font-size: .9rem;
  font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid var(--line) }
th { color: var(--dim); font-weight: 600 }
tr.predicted { color: var(--dim); font-style: italic }
h3 { font-size: 1rem; margin: 1rem 0 .25rem }
tr.best { background: var(--soft); font-weight: 600 }
/* What a row is of stays while the others scroll. */
.table :is(th, td):first-child { position: sticky; left: 0; background: Canvas }
.table tr.best > :first-child { background: linear-gradient(var(--soft) 0 0) Canvas }
td { max-width: 22rem; overflow-wrap: break-word }
pre { background: var(--soft); padding: .75rem; border-radius: .5rem; white-space: pre-wrap;
  overflow-wrap: anywhere }
@media print { figure, tr { break-inside: avoid } body { max-width: none }
  .table { overflow: visible; font-size: .7rem; background: none }
  table { width: auto } }
"""


def to_html(report: Report) -> str:
    name = escape(report.analysis.name)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{name} · report</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>",
            f'<h1>{name}</h1>\n<p class="sub">Report of an experiment</p>',
            "<h2>Summary</h2>", _pairs(content.summary(report)),
            "<h2>Findings</h2>", _list(report.analysis.findings),
            *_comparisons(report),
            *_plots(report),
            *_curves(report),
            *_communication(report),
            "<h2>Trials</h2>", *_note(content.note(report)), _table(report),
            "<h2>Experiment</h2>", f"<pre>{escape(content.spec_yaml(report))}</pre>",
            "<h2>Environment</h2>", _pairs(content.environment(report)),
            "<h2>Repeat it</h2>",
            "<p>Save the experiment above as <code>experiment.yaml</code>.</p>",
            f"<pre>{escape(chr(10).join(content.COMMANDS))}</pre>",
            "</body>\n</html>\n",
        ]
    )  # fmt: skip


def _comparisons(report: Report) -> list[str]:
    texts = [each.text for each in report.analysis.comparisons if each.field is not None]
    return ["<h2>Comparisons</h2>", _list(texts)] if texts else []


def _plots(report: Report) -> list[str]:
    drawn = zip(plots(report), plots(report, Width.NARROW), strict=True)
    figures = [
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>'
        for (title, wide), (_, narrow) in drawn
    ]
    return ["<h2>Charts</h2>", *figures] if figures else []


def _note(text: str) -> list[str]:
    return [f'<p class="sub">{escape(text)}</p>'] if text else []


def _table(report: Report) -> str:
    best = report.analysis.best.trial if report.analysis.best is not None else None
    rows = [
        _row(content.cells(report, row), "best" if row.trial == best else "")
        for row in report.analysis.table
    ]
    return _table_of(content.columns(report), rows)


def _curves(report: Report) -> list[str]:
    found = []
    for table in content.curve_tables(report):
        rows = [
            _row(cells, "predicted" if i in table.predicted else "")
            for i, cells in enumerate(table.rows)
        ]
        found += [f"<h3>{escape(table.title)}</h3>", _table_of(table.columns, rows)]
    return ["<h2>Scaling</h2>", *found] if found else []


def _communication(report: Report) -> list[str]:
    if (table := content.communication_table(report)) is None:
        return []
    rows = [_row(cells, "") for cells in table.rows]
    note = _note(content.COMMUNICATION_NOTE)
    return [f"<h2>{escape(table.title)}</h2>", *note, _table_of(table.columns, rows)]


def _table_of(titles: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join(rows)
    # By keyboard it can be scrolled, too.
    frame = '<div class="table" tabindex="0" role="region" aria-label="Table">'
    return f"{frame}<table>\n<tr>{head}</tr>\n{body}\n</table></div>"


def _row(cells: Sequence[str], name: str) -> str:
    inner = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{f' class={name}' if name else ''}>{inner}</tr>"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f"<dl>{inner}</dl>"


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
