"""An experiment on the dashboard, from its spec to the job of its best trial."""

import re

import pytest
from playwright.sync_api import Page, expect
from support.waiting import SLOW

pytestmark = pytest.mark.browser

SWEEP = """\
name: sweep-on-the-page
kind: sweep
job:
  name: sweeps
  task: {name: synthetic, params: {features: 8, hidden: [8]}}
  training: {steps: 5, global_batch_size: 8}
space:
  training.learning_rate: [0.001, 0.01]
method: grid
objective: {metric: loss}
parallel: 1
"""


def write_experiment(page: Page, text: str) -> None:
    editor = page.get_by_role("textbox", name="Experiment in YAML")
    editor.click()
    page.keyboard.press("Control+a")
    # Not typed: the editor would indent by itself.
    page.keyboard.insert_text(text)


def select_lowest_rate(page: Page) -> None:
    """Draw a range along the lower half of the axis of the learning rates."""
    axis = page.locator("[data-axis=learning_rate]")
    axis.scroll_into_view_if_needed()
    box = axis.bounding_box()
    assert box
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] - 1)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()


def test_sweep_is_created_watched_and_its_best_trial_opened(page: Page) -> None:
    page.goto("/experiments")
    expect(page.get_by_text("No experiments yet")).to_be_visible()
    page.get_by_role("link", name="New experiment").first.click()
    write_experiment(page, SWEEP.replace("learning_rate", "learning_rat"))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("did you mean")
    expect(page.get_by_role("alert").get_by_role("button").first).to_contain_text("line 8")

    write_experiment(page, SWEEP)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="sweep-on-the-page")).to_be_visible()
    expect(page.get_by_test_id("experiment-state")).to_have_text("completed", timeout=SLOW)
    expect(page.get_by_test_id("runs")).to_have_text("2 of 2 runs completed")
    trials = page.get_by_role("table", name="Trials")
    expect(trials.get_by_text("completed", exact=True)).to_have_count(2)
    # A chart is drawn for the trials, and for the parameter that is chosen.
    chart = page.locator("[data-chart='loss by trial'] canvas")
    expect(chart).to_be_visible()
    page.get_by_role("combobox", name="X axis").click()
    page.get_by_role("option", name="learning_rate").click()
    expect(page.locator("[data-chart='loss by learning_rate'] canvas")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?x=training\.learning_rate$"))
    select_lowest_rate(page)
    expect(page.get_by_text("1 of 2 trials selected")).to_be_visible()
    expect(page).to_have_url(re.compile("brush="))
    expect(trials.get_by_role("row")).to_have_count(2)
    page.reload()
    expect(trials.get_by_role("checkbox", name="Select trial 1")).to_be_checked()
    page.get_by_role("button", name="Clear selection").click()
    expect(trials.get_by_role("row")).to_have_count(3)

    page.get_by_role("tab", name="Analysis").click()
    findings = page.get_by_role("region", name="Findings")
    expect(findings).to_contain_text(re.compile(r"Trial \d has the lowest loss"))
    expect(findings).to_contain_text("with 1 repeat no spread is known")
    page.get_by_role("button", name="Report").click()
    with page.expect_popup() as opened:
        page.get_by_role("menuitem", name="Open").click()
    expect(opened.value.get_by_role("heading", name="sweep-on-the-page")).to_be_visible()
    expect(
        opened.value.get_by_role("img", name="loss by trial, with the best so far")
    ).to_be_visible()
    opened.value.close()

    page.get_by_role("region", name="Best trial").get_by_role("link").click()
    expect(page.get_by_test_id("job-state")).to_have_text("completed")
    page.get_by_role("link", name=re.compile(r"trial \d of an experiment")).click()
    expect(page.get_by_role("heading", name="sweep-on-the-page")).to_be_visible()

    page.get_by_role("navigation").get_by_role("link", name="Experiments").click()
    row = page.get_by_role("table", name="Experiments").get_by_role("row").nth(1)
    expect(row).to_contain_text("sweep-on-the-page")
    expect(row).to_contain_text("2 of 2 completed")


BENCHMARK = """\
name: workers-on-the-page
kind: benchmark
job:
  name: speed
  task: {name: synthetic, params: {features: 8, hidden: [8]}}
  resources: {device: cpu}
  training: {steps: 12, global_batch_size: 8}
space:
  resources.workers: [1, 2, 3]
baseline: {resources.workers: 1}
warmup_steps: 2
"""


def test_benchmark_has_a_table_with_its_baseline(page: Page) -> None:
    page.goto("/experiments/new")
    write_experiment(page, BENCHMARK)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_test_id("experiment-state")).to_have_text("completed", timeout=SLOW)
    table = page.get_by_role("table", name="Benchmark")
    first, second, third = (table.get_by_role("row").nth(row) for row in (1, 2, 3))
    expect(first).to_contain_text("baseline")
    expect(second).to_contain_text(re.compile(r"\d ×"), timeout=SLOW)
    expect(third).to_contain_text("cannot run: training.global_batch_size")
    header = table.get_by_role("columnheader", name="workers")
    header.get_by_role("button").click()
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(first).to_contain_text("cannot run")


def test_scaling_study_has_a_chart_and_a_table(page: Page) -> None:
    study = BENCHMARK.replace("kind: benchmark", "kind: scaling").replace("[1, 2, 3]", "[1, 2]")
    study = study.replace("baseline: {resources.workers: 1}\n", "")
    page.goto("/experiments/new")
    write_experiment(page, study.replace("workers-on", "scaling-on"))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_test_id("experiment-state")).to_have_text("completed", timeout=SLOW)
    table = page.get_by_role("table", name="Strong scaling")
    expect(table.get_by_role("row").nth(2)).to_contain_text(re.compile(r"2measured"), timeout=SLOW)
    expect(page.get_by_role("img", name="Speed-up over workers")).to_be_visible()
    expect(page.get_by_text("nothing is predicted: it takes 3 numbers of workers")).to_be_visible()


def test_sweep_with_early_stopping_shows_rungs_and_steps(page: Page) -> None:
    page.goto("/experiments/new")
    write_experiment(page, SWEEP.replace("steps: 5, ", "steps: 6, "))
    page.get_by_role("textbox", name="Name", exact=True).fill("stopped-early")
    rates = page.get_by_role("textbox", name="Values of training.learning_rate")
    expect(rates).to_have_value("0.001, 0.01")
    rates.fill("0.001, 0.01, 0.1")
    page.get_by_role("switch", name="Stop poor runs early").click()
    page.get_by_role("textbox", name="First rung").fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("Valid. 3 trials: ")).to_be_visible()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_test_id("experiment-state")).to_have_text("completed", timeout=SLOW)
    expect(page.get_by_test_id("runs")).to_have_text("1 of 3 runs completed, 2 stopped")
    expect(
        page.get_by_text("10 of 18 steps that all runs in full would take (56 %)")
    ).to_be_visible()
    trials = page.get_by_role("table", name="Trials")
    expect(trials.get_by_role("columnheader", name="rung")).to_be_visible()
    expect(trials.get_by_text("stopped early at step 2: ")).to_have_count(2)
    rungs = page.locator("[data-chart='loss by rung']")
    expect(rungs.locator("canvas")).to_be_visible()
    for fate in ("promoted", "completed", "stopped"):
        expect(rungs.get_by_text(fate, exact=True)).to_be_visible()
