"""Reports: hostile names stay text, nothing is loaded, and every format has the figures."""

import csv
import io
import json
import math
import random
import re
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.experiments import RATE, experiment, runs

from trainhall.cluster.experiments.analysis.analyze import analyze
from trainhall.cluster.experiments.analysis.rows import RunRow
from trainhall.cluster.experiments.report.content import Report, note
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.report.plots import plots
from trainhall.cluster.experiments.report.render import render
from trainhall.cluster.experiments.report.svg import Axis, Kind, Mark, Point, Width, scatter
from trainhall.cluster.experiments.report.tables import to_csv

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE trials; --",
    "](javascript:alert(1)) | `x` ```\n# heading",
    "=HYPERLINK('http://example.org')",
    "${jndi:x} {{7*7}}",
]
LOADING = {"src", "href", "xlink:href", "data", "action", "srcset", "poster", "background"}


def report(name: str = "rates", optimizers: tuple[str, ...] = ("adam", "sgd")) -> Report:
    space: dict[str, Any] = {RATE: {"log": [1e-4, 1e-1]}, "training.optimizer": list(optimizers)}
    chance = random.Random(1)
    rows: list[RunRow] = []
    for trial in range(1, 13):
        rate = 10 ** chance.uniform(-4, -1)
        values = {RATE: rate, "training.optimizer": chance.choice(optimizers)}
        first = -math.log10(rate)
        rows += runs(trial, values, *((None,) if trial == 5 else (first, first + 0.1, first + 0.2)))
    rows[0] = RunRow(**{**vars(rows[0]), "figures": {"step_seconds": 0.25, "steps": 100}})
    analyzed = analyze(
        experiment(name=name, space=space), rows, NOW, lambda axes, *_: np.ones(len(axes))
    )
    spec = {
        "name": name, "kind": "sweep", "method": "random", "space": space, "trials": 12,
        "objective": {"metric": "eval_accuracy", "goal": "max", "at": "last"}, "seed": None,
        "job": {"name": name, "task": {"name": "digits"}},
    }  # fmt: skip
    return Report(analyzed, spec)


class Page(HTMLParser):
    """The tags and the visible text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [name for name, _ in attrs if name in LOADING or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", HOSTILE)
def test_html_shows_hostile_names_as_text_and_loads_nothing(name: str) -> None:
    plain = Page(render(report(), ReportFormat.HTML))
    hostile = Page(render(report(name, (name, "sgd")), ReportFormat.HTML))
    assert hostile.tags == plain.tags
    assert hostile.loads == []
    assert name in hostile.text
    assert "url(" not in render(report(name), ReportFormat.HTML)


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_has_no_markup_of_names(name: str) -> None:
    text = render(report(name, (name, "sgd")), ReportFormat.MD)
    prose = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.S | re.M)
    assert re.findall(r"<(?!/?(?:svg|path|line|text|circle|rect)\b)", prose) == []
    assert len(re.findall(r"^# ", prose, re.M)) == 1
    rows = [line for line in prose.splitlines() if re.match(r"\| \d", line)]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in rows] == [9] * 12


def test_html_has_summary_findings_charts_table_and_spec() -> None:
    given = report()
    page = Page(render(given, ReportFormat.HTML))
    assert page.tags.count("svg") == 2 * 4, "each for a wide and for a narrow window"
    assert page.tags.count("tr") == 13
    assert "not the batch divided by the other" not in page.text
    for finding in given.analysis.findings:
        assert finding in page.text
    for text in ("rates (7c0d93be12f4)", "2026-01-02 03:04:05 UTC", "250 ms", "Trainhall"):
        assert text in page.text
    for command in ("create experiment.yaml -f", "report ID --format html"):
        assert f"trainhall experiment {command}" in page.text


def stopped_early() -> Report:
    """One trial took all steps, two were stopped, one waits and one runs."""
    states = {1: ("stopped", [0.95]), 2: ("completed", [0.4, 0.5]), 3: ("paused", [0.25]),
              4: ("running", [0.3]), 5: ("stopped", [0.2])}  # fmt: skip
    rows = [
        RunRow(
            number, 1, {RATE: number / 10}, state, results=results,
            objective=results[-1] if state == "completed" else None,
        )
        for number, (state, results) in states.items()
    ]  # fmt: skip
    given = experiment(rungs=(1000, 3000), space={RATE: {"range": [0.1, 0.5]}})
    analyzed = analyze(given, rows, NOW, lambda axes, *_: np.ones(len(axes)))
    return Report(analyzed, {**report().spec, "space": given.space})


@pytest.mark.parametrize("form", [ReportFormat.HTML, ReportFormat.MD])
def test_stopped_trial_has_the_value_of_its_last_rung(form: ReportFormat) -> None:
    given = stopped_early()
    assert given.analysis.best is not None
    assert given.analysis.best.trial == 2
    text = render(given, form)
    for expected in ("0.95 at step 1,000", "0.25 at step 1,000", "“At step”: the value"):
        assert expected in text
    assert "0.5 at step" not in text


def test_note_explains_rungs_and_speeds() -> None:
    given = stopped_early()
    first, *others = given.analysis.table
    measured = first.model_copy(update={"samples_per_second": 5.0, "runs": 2})
    given.analysis.table = [measured, *others]
    text = note(given)
    assert "“At step”: the value" in text
    assert "medians over the steps of a run" in text


def test_charts_mark_trials_that_did_not_complete() -> None:
    (_, by_trial), *_ = plots(stopped_early())
    assert by_trial.count("<circle") == 1, "the best"
    # A path for each of the marks, and one for each in the legend; the line is of trial 2 alone.
    assert len(re.findall(r'd="(M[\d. ]+m-3.5 -3.5l7 7m0 -7l-7 7)+"', by_trial)) == 2
    for name in ("completed", "stopped early, at its last rung", "paused, at its last rung"):
        assert f">{name}</text>" in by_trial
    (line,) = re.findall(r'd="(M[^"]*)" fill="none" stroke="#e8590c"', by_trial)
    assert "V" not in line


def test_chart_of_completed_trials_needs_no_legend() -> None:
    (_, by_trial), *_ = plots(report())
    assert "completed" not in by_trial


def test_axis_of_counts_has_whole_numbers() -> None:
    for last in (2, 3, 5, 9, 40):
        points = [Point(float(n), 1.0, Mark.FILLED) for n in range(1, last + 1)]
        for width in Width:
            drawn = scatter("t", points, Axis("trial", is_whole=True), "y", width=width)
            ticks = re.findall(r'text-anchor="middle">([\d.,]+)</text>', drawn)
            assert len(ticks) > 1
            assert not [tick for tick in ticks if "." in tick]


def test_axis_of_one_large_seed_is_drawn() -> None:
    drawn = scatter("t", [Point(2.0**62, 1.0, Mark.FILLED)], Axis("seed", is_whole=True), "y")
    assert 'text-anchor="middle">' in drawn


def test_narrow_charts_fit_a_phone() -> None:
    narrow = plots(report(), Width.NARROW)
    assert [title for title, _ in narrow] == [title for title, _ in plots(report())]
    assert all('viewBox="0 0 360 ' in drawn and "max-width:100%" in drawn for _, drawn in narrow)


def test_spec_of_a_report_creates_the_experiment_again() -> None:
    given = report()
    text = render(given, ReportFormat.MD)
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.S | re.M)
    kept = {key: value for key, value in given.spec.items() if value is not None}
    assert yaml.safe_load(block) == kept


def test_json_report_is_the_analysis() -> None:
    given = report()
    assert json.loads(render(given, ReportFormat.JSON)) == json.loads(
        given.analysis.model_dump_json()
    )


def test_csv_has_a_line_for_each_run() -> None:
    rows = runs(1, {RATE: 0.1, "code": [1, 2], "name": "=1+1"}, 0.5, None)
    found = list(csv.DictReader(io.StringIO(to_csv([RATE, "code", "name"], rows))))
    assert [row["objective"] for row in found] == ["0.5", ""]
    assert [row["reason"] for row in found] == ["", "rank 0 was killed"]
    assert found[0][RATE] == "0.1"
    assert found[0]["code"] == "[1, 2]"
    # A spreadsheet computes nothing.
    assert found[0]["name"] == "'=1+1"


def test_csv_has_a_column_for_each_rung() -> None:
    rows = [RunRow(1, 1, {}, "stopped", results=[0.25]), RunRow(2, 1, {}, "pending")]
    found = list(csv.DictReader(io.StringIO(to_csv([], rows, rungs=(10, 30)))))
    assert [row["objective_at_step_10"] for row in found] == ["0.25", ""]
    assert [row["objective_at_step_30"] for row in found] == ["", ""]


def test_experiment_without_a_finished_run_has_a_report() -> None:
    rows = [RunRow(1, 1, {RATE: 0.1}, "pending")]
    given = experiment(state="running", is_finished=False)
    analyzed = analyze(given, rows, NOW, lambda axes, *_: np.ones(len(axes)))
    spec = {**report().spec, "space": given.space}
    for form in (ReportFormat.HTML, ReportFormat.MD, ReportFormat.JSON):
        text = render(Report(analyzed, spec), form)
        assert "No run has completed" in text
        assert ("No run has ended yet, so nothing is measured" in text) == (form != "json")
        assert "<svg" not in text


@given(
    st.lists(
        st.tuples(st.floats(1e-300, 1e300), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([Kind.LINEAR, Kind.LOG]),
)
@example([(1.0, sys.float_info.max)], Kind.LINEAR)
def test_charts_of_extreme_values_have_finite_places(
    points: list[tuple[float, float]], kind: Kind
) -> None:
    drawn = scatter(
        "t",
        [Point(x, y, Mark.FILLED) for x, y in points],
        Axis("x", kind),
        "y",
        best=0,
        line=points,
    )
    assert "nan" not in drawn
    assert "inf" not in drawn
