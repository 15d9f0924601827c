"""The dashboard, as a person uses it."""

import csv
import io
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from support.cluster.cluster import Cluster
from support.waiting import SLOW

pytestmark = pytest.mark.browser


def paced(name: str, steps: int = 100_000, step_seconds: float = 0.1) -> dict[str, object]:
    """A job whose steps take so long that ranks and page leave the processors to the others."""
    return {
        "name": name,
        "task": {"name": "synthetic", "params": {"step_seconds": step_seconds}},
        "resources": {"workers": 2},
        "training": {"steps": steps, "global_batch_size": 32},
    }


def state(page: Page, word: str) -> None:
    """The page says that the job is in this state."""
    expect(page.get_by_test_id("job-state")).to_have_text(word, timeout=SLOW)


def step(page: Page) -> int:
    found = re.match(r"step ([\d,]+)", page.get_by_test_id("step").inner_text())
    assert found
    return int(found[1].replace(",", ""))


def wait_for_step(page: Page, least: int) -> None:
    page.wait_for_function(
        """least => {
            const text = document.querySelector('[data-testid=step]')?.textContent ?? "";
            return Number((/step ([\\d,]+)/.exec(text)?.[1] ?? "0").replaceAll(",", "")) >= least;
        }""",
        arg=least,
        timeout=SLOW,
    )


def live(page: Page) -> Locator:
    return page.get_by_role("status").filter(has_text=re.compile("^live$"))


def curve(page: Page, title: str, column: str) -> list[tuple[int, float]]:
    """The points that a chart draws, as the page saves them."""
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {title} as CSV").click()
    text = Path(download.value.path()).read_text()
    rows = csv.DictReader(io.StringIO(text))
    return [(int(row["step"]), float(row[column])) for row in rows if row[column]]


def assert_complete(points: list[tuple[int, float]]) -> None:
    """Every step is there; of a long curve, which is thinned, every k-th."""
    steps = [step for step, _ in points]
    every = steps[0]
    assert steps[:-1] == list(range(every, steps[-1], every))


def write_spec(page: Page, text: str) -> None:
    editor = page.get_by_role("textbox", name="Job spec in YAML")
    editor.click()
    page.keyboard.press("Control+a")
    # Not typed: the editor would indent by itself.
    page.keyboard.insert_text(text)


def test_spec_editor_marks_errors_and_submits(page: Page, cluster: Cluster) -> None:
    page.goto("/")
    expect(page).to_have_url(re.compile("/jobs$"))
    page.get_by_role("navigation").get_by_role("link", name="New job").click()
    text = "name: from-the-page\ntask:\n  name: digits\ntraining:\n  stepz: 200\n"
    write_spec(page, text)
    page.get_by_role("button", name="Submit").click()
    problem = page.get_by_role("alert").get_by_role("button")
    expect(problem).to_contain_text("line 5")
    expect(problem).to_contain_text("did you mean 'steps'?")
    expect(page.locator(".cm-lintRange-error")).to_have_text("stepz: 200")
    # Nothing was lost, not even by a reload.
    page.reload()
    expect(page.locator(".cm-content")).to_contain_text("stepz: 200")

    write_spec(page, text.replace("stepz", "steps"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("Valid.")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("/jobs/[0-9a-f]+$"))
    expect(page.get_by_role("heading", name="from-the-page")).to_be_visible()
    cluster.wait_for(page.url.rsplit("/", 1)[1], "completed", timeout=120)
    state(page, "completed")
    wait_for_step(page, 200)
    assert [step for step, _ in curve(page, "Loss", "loss")] == list(range(1, 201))
    expect(page).to_have_title(re.compile("^from-the-page · completed"))


def test_pause_resume_and_cancel(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(paced("commanded"))
    page.goto(f"/jobs/{job}")
    state(page, "running")
    wait_for_step(page, 5)
    page.get_by_role("button", name="Pause", exact=True).click()
    state(page, "paused")
    assert cluster.job(job)["state"] == "paused"
    paused_at = step(page)
    page.get_by_role("button", name="Resume").click()
    state(page, "running")
    wait_for_step(page, paused_at + 5)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    assert cluster.job(job)["state"] == "running"
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel job").click()
    state(page, "cancelled")
    assert_complete(curve(page, "Loss", "loss"))
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_role("region", name=re.compile(r"^Attempt \d$"))).to_have_count(2)
    page.get_by_role("tab", name="Checkpoints").click()
    expect(page.get_by_role("table", name="Checkpoints").get_by_role("row")).to_have_count(2)


def test_curve_survives_reload_and_coordinator_restart(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(paced("survivor"))
    page.goto(f"/jobs/{job}")
    wait_for_step(page, 5)
    page.reload()
    wait_for_step(page, 15)
    expect(live(page)).to_be_visible()

    cluster.coordinator.kill()
    expect(
        page.get_by_role("status").filter(has_text=re.compile("reconnecting|stale"))
    ).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="stale")).to_be_visible(timeout=SLOW)
    pause = page.get_by_role("button", name="Pause", exact=True)
    expect(pause).to_have_accessible_description(re.compile("unreachable"), timeout=SLOW)
    expect(pause).to_be_disabled()
    shown = step(page)
    cluster.start_coordinator()
    expect(live(page)).to_be_visible(timeout=SLOW)
    expect(pause).to_be_enabled(timeout=SLOW)
    wait_for_step(page, shown + 10)

    points = curve(page, "Loss", "loss")
    assert_complete(points)
    stored = dict(cluster.points(job, "loss"))
    assert dict(points).items() <= stored.items()
    cluster.request("DELETE", f"/training/jobs/{job}")
    state(page, "cancelled")
    page.get_by_role("tab", name="Timeline").click()
    shown_events = page.locator("li[data-seq]")
    stored_events = cluster.get(f"/training/jobs/{job}/events", params={"limit": 500})["items"]
    expect(shown_events).to_have_count(len(stored_events))
    seqs = {int(row.get_attribute("data-seq") or 0) for row in shown_events.all()}
    assert seqs == {event["seq"] for event in stored_events}


def test_coordinator_failure_keeps_the_page(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(paced("still-shown", steps=20))
    cluster.wait_for(job, "completed", timeout=120)
    page.goto(f"/jobs/{job}?tab=timeline")
    heading = page.get_by_role("heading", name="still-shown")
    expect(heading).to_be_visible()
    cluster.coordinator.kill()
    page.get_by_role("tab", name="Spec").click()
    problem = page.get_by_role("alert").filter(has_text="Could not load the spec")
    expect(problem).to_contain_text("this page retries automatically")
    expect(heading).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Queue").click()
    expect(page).to_have_url(re.compile("/queue$"))
    expect(page.get_by_text("Could not load the page")).to_be_visible()
    page.go_back()
    expect(heading).to_be_visible()
    cluster.start_coordinator()
    expect(page.get_by_text("name: still-shown")).to_be_visible(timeout=SLOW)
    page.get_by_role("navigation").get_by_role("link", name="Queue").click()
    expect(page.get_by_role("heading", name="Queue", level=1)).to_be_visible(timeout=SLOW)


HOSTILE = r"""
import os, sys
out = sys.stdout.buffer
out.write(b'<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\n')
out.write(b'\x1b]8;;javascript:window.hacked=3\x07a link\x1b]8;;\x07 \x1b[31mred\x1b[0m text\n')
out.write(bytes(b for b in range(256) if b != 10) * 4 + b'\n')
out.write(b'x' * 300000 + b'\n')
out.write(' \u202ereversed\n'.encode())
out.write(b'the end\n')
out.flush()
print('<b>to stderr</b>', file=sys.stderr, flush=True)
"""


def test_rank_output_cannot_inject_into_the_page(
    page: Page, cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "hostile.py"
    script.write_text(HOSTILE)
    job = cluster.submit({"name": "<i>hostile</i>", "script": {"path": str(script)}})
    cluster.wait_for(job, "completed")
    page.goto(f"/jobs/{job}?tab=logs")
    log = page.get_by_role("log")
    expect(log.get_by_text("the end")).to_be_visible()
    log.evaluate("element => element.scrollTo(0, 0)")
    expect(log.get_by_text('<img src=x onerror="window.hacked=1">')).to_be_visible()
    expect(log.get_by_text("a link")).to_be_visible()
    expect(log.get_by_text("red", exact=True)).to_have_css("color", "rgb(179, 38, 30)")
    # Long lines come in pieces, and the page cuts each.
    expect(log.get_by_text(re.compile("^x{2000}$")).first).to_be_visible()
    assert log.locator("img, script, a, b").count() == 0
    assert page.evaluate("window.hacked") is None
    expect(page.get_by_role("heading", name="<i>hostile</i>")).to_be_visible()
    page.get_by_text("stderr", exact=True).click()
    expect(log.get_by_text("<b>to stderr</b>")).to_be_visible()
    expect(log.get_by_text("the end")).to_have_count(0)
    expect(page).to_have_url(re.compile("stream=stderr"))


CHATTY = """
import os, sys, time
for i in range(500):
    print("line", i, flush=True)
    while i == 249 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
"""


def test_logs_are_followed(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    script, gate = tmp_path / "chatty.py", tmp_path / "gate"
    script.write_text(CHATTY)
    job = cluster.submit(
        {
            "name": "chatty",
            "script": {"path": str(script), "args": [str(gate)]},
            "resources": {"workers": 2},
        }
    )
    page.goto(f"/jobs/{job}?tab=logs&rank=1")
    expect(page.get_by_role("log").get_by_text("line 249", exact=True)).to_be_visible(timeout=SLOW)
    gate.touch()
    expect(page.get_by_role("log").get_by_text("line 499", exact=True)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("500 lines")).to_be_visible()


def test_jobs_are_filtered_by_the_address(page: Page, cluster: Cluster) -> None:
    waiting = cluster.submit({**paced("waits-for-many"), "resources": {"workers": 32}})
    page.goto("/jobs")
    row = page.locator(f'tr[data-job="{waiting}"]')
    expect(row).to_contain_text("queued")
    page.get_by_role("button", name=re.compile("^Waiting")).click()
    expect(page).to_have_url(re.compile("show=waiting"))
    page.reload()
    expect(row).to_be_visible()
    page.goto("/jobs?show=completed")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(row).to_have_count(0)
    page.goto("/jobs?search=for-many")
    expect(page.locator("tr[data-job]")).to_have_count(1)
    row.get_by_role("button", name="Cancel waits-for-many").click()
    page.get_by_role("button", name="Cancel job").click()
    expect(row).to_contain_text("cancelled")


def test_nodes_and_the_command_that_adds_one(page: Page, cluster: Cluster) -> None:
    page.goto("/nodes")
    here = page.get_by_role("region", name="Node here")
    expect(here).to_contain_text("ready")
    expect(here.get_by_role("table").get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="Add a node").click()
    page.get_by_label("Name").fill("gpu-07")
    page.get_by_role("button", name="Get command").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("trainhall agent")).to_contain_text(cluster.url)
    expect(dialog.get_by_role("alert")).to_contain_text("answers on loopback only")
    dialog.get_by_role("button", name="Done").click()
    added = page.get_by_role("region", name="Node gpu-07")
    expect(added).to_contain_text("pending")
    added.get_by_role("button", name="Remove gpu-07").click()
    expect(page.get_by_role("dialog")).to_contain_text("Nothing runs on it")
    page.get_by_role("button", name="Remove node").click()
    expect(added).to_have_count(0)


def test_gradients_are_recorded_while_a_job_runs(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(
        {
            "name": "endless",
            "task": {"name": "synthetic", "params": {"step_seconds": 0.1, "hidden": [8]}},
            "resources": {"workers": 2},
            "training": {"steps": 1_000_000},
        }
    )
    cluster.wait_for_step(job, 1)
    page.goto(f"/jobs/{job}")
    page.get_by_role("tab", name="Gradients").click()
    expect(page.get_by_text("No gradients recorded")).to_be_visible()
    page.get_by_role("button", name="Record gradients").click()
    table = page.get_by_role("table", name="Gradients by parameter")
    expect(table.get_by_role("row")).to_have_count(5)
    expect(page.get_by_role("img", name="Magnitudes of the gradient of 0.weight")).to_be_visible()
    table.get_by_role("button", name="2.bias").click()
    expect(page.get_by_text(re.compile(r"^1 value, 0 zero$"))).to_be_visible()
    table.get_by_role("combobox", name="Order").click()
    page.get_by_role("option", name="Largest first").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("weight")
    page.reload()
    expect(table.get_by_role("row")).to_have_count(5)
    cluster.request("DELETE", f"/training/jobs/{job}")
    expect(page.get_by_role("button", name="Record gradients")).to_have_count(0)


def test_missing_page_is_reported(page: Page) -> None:
    page.goto("/jobs/nosuchjob")
    expect(page.get_by_role("heading", name="Job not found")).to_be_visible()
    page.goto("/nowhere/at/all")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()


def test_colours_are_chosen_and_kept(page: Page) -> None:
    scheme = "data-mantine-color-scheme"
    page.emulate_media(color_scheme="light")
    page.goto("/jobs")
    expect(page.locator("html")).to_have_attribute(scheme, "light")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute(scheme, "dark")
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Theme", exact=True).click()
    page.get_by_role("menuitem", name="Dark").click()
    expect(page.locator("html")).to_have_attribute(scheme, "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute(scheme, "dark")
    page.get_by_role("button", name="Theme", exact=True).click()
    page.get_by_role("menuitem", name="System").click()
    expect(page.locator("html")).to_have_attribute(scheme, "light")
