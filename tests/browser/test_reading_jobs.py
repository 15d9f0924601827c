"""Zooming into curves, comparing jobs, searching long logs, and opening traces."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect
from support.cluster.cluster import Cluster
from support.waiting import SLOW

pytestmark = pytest.mark.browser


def quick(name: str, **training: Any) -> dict[str, Any]:
    return {
        "name": name,
        "task": {"name": "synthetic", "params": {"features": 8, "hidden": [8]}},
        "training": {"steps": 400, "global_batch_size": 8, **training},
    }


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> list[str]:
    """Two that are done and differ in their learning rate."""
    ids = [
        cluster.submit(quick("slow-learner", learning_rate=0.001)),
        cluster.submit(quick("fast-learner", learning_rate=0.01)),
    ]
    for job in ids:
        cluster.wait_for(job, "completed", timeout=120)
    return ids


def chart(page: Page, title: str) -> Locator:
    return page.locator(f'figure[data-chart="{title}"]')


def drag(page: Page, over: Locator, begin: float, end: float) -> None:
    """Between two points of a chart, as shares of its width."""
    expect(over).to_be_visible()
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
    page.mouse.up()


def test_list_is_sorted_and_queried(page: Page, jobs: list[str]) -> None:
    page.goto("/jobs")
    names = page.get_by_role("table", name="Jobs").locator("[data-cell=name] a")
    expect(names.filter(has_text="learner")).to_have_text(["fast-learner", "slow-learner"])
    header = page.get_by_role("columnheader", name="Job", exact=True)
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(names.filter(has_text="learner")).to_have_text(["slow-learner", "fast-learner"])
    query = page.get_by_role("textbox", name="Query")
    query.fill("learner step>")
    expect(page.get_by_text("at character 14: expected a value after >")).to_be_visible()
    query.fill("learner step>5 -fast")
    expect(names).to_have_text(["slow-learner"])
    expect(page).to_have_url(re.compile(r"sort=-name.*query=|query=.*sort=-name"))
    page.reload()
    expect(names).to_have_text(["slow-learner"])
    expect(header).to_have_attribute("aria-sort", "descending")


def test_ended_job_is_archived_and_deleted(page: Page, cluster: Cluster) -> None:
    job = cluster.submit({**quick("put-away"), "resources": {"workers": 8}})
    cluster.request("DELETE", f"/training/jobs/{job}")
    page.goto(f"/jobs?search={job}&selected={job}")
    row = page.locator("tr[data-job]")
    expect(row).to_have_count(1)
    page.get_by_role("button", name="Archive 1 job").click()
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.get_by_role("button", name="Archived").click()
    row.get_by_role("checkbox").click()
    expect(page.get_by_role("button", name="Unarchive 1 job")).to_be_visible()
    page.get_by_role("button", name="Delete 1 job…").click()
    page.get_by_role("button", name="Delete 1 job", exact=True).click()
    expect(page.get_by_text("1 job deleted")).to_be_visible()
    expect(row).to_have_count(0)
    expect(page).not_to_have_url(re.compile("selected"))


def test_long_list_draws_only_what_is_on_screen(page: Page, jobs: list[str]) -> None:
    size, pages = 100, 5
    asked: list[str] = []

    def answer(route: Route, request: Request) -> None:
        cursor = int((re.search(r"cursor=(\d+)", request.url) or [0, 0])[1])
        asked.append(str(cursor))
        one = route.fetch(url=request.url.split("?")[0] + f"/{jobs[0]}").json()
        items = [{**one, "id": f"{cursor * size + n:012}"} for n in range(size)]
        following = str(cursor + 1) if cursor + 1 < pages else None
        route.fulfill(json={"items": items, "next_cursor": following})

    page.route(re.compile(r"/training/jobs\?"), answer)
    page.route(re.compile(r"/metrics/jobs/0+"), lambda route: route.fulfill(json={"series": []}))
    page.goto("/jobs")
    table = page.get_by_role("table", name="Jobs")
    for count in range(1, pages + 1):
        expect(table).to_have_attribute("aria-rowcount", str(count * size + 1))
        page.locator("tr[data-job]").last.scroll_into_view_if_needed()
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator(f'tr[aria-rowindex="{count * size + 1}"]')).to_be_visible()
        assert page.locator("tr[data-job]").count() < 60
    expect(page.get_by_role("button", name="Load more")).to_have_count(0)
    assert set(asked) == {str(each) for each in range(pages)}


def test_zoom_loads_its_steps_and_updates_url(page: Page, jobs: list[str]) -> None:
    page.goto(f"/jobs/{jobs[0]}")
    plot = chart(page, "Loss").locator(".u-over")
    with page.expect_request(re.compile(r"from_step=\d+&to_step=\d+|to_step=\d+")) as asked:
        drag(page, plot, 0.25, 0.5)
    expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
    found = re.search(r"from=(\d+)&to=(\d+)", page.url)
    assert found
    begin, end = int(found[1]), int(found[2])
    assert 90 < begin < 110, page.url
    assert 190 < end < 210, page.url
    assert f"from_step={begin}" in asked.value.url
    zoomed = f"steps {begin} to {end}"
    expect(page.get_by_text(zoomed)).to_be_visible()
    page.reload()
    expect(page.get_by_text(zoomed)).to_be_visible()
    expect(plot).to_be_visible()
    plot.dblclick()
    expect(page).not_to_have_url(re.compile("from="))
    page.go_back()
    expect(page.get_by_text(zoomed)).to_be_visible()
    page.get_by_role("button", name="Reset zoom").click()
    expect(page).not_to_have_url(re.compile("from="))

    page.get_by_text("Relative time").click()
    page.get_by_role("switch", name="Log scale").click()
    expect(page).to_have_url(re.compile("x=elapsed.*log=true"))
    expect(chart(page, "Loss").get_by_role("img")).to_have_accessible_name(
        "Loss over relative time"
    )
    page.get_by_role("combobox", name="Metric on the X axis").click()
    page.get_by_role("option", name="learning_rate").click()
    expect(page).to_have_url(re.compile("x=metrics.learning_rate"))
    expect(chart(page, "Loss").get_by_role("img")).to_have_accessible_name(
        "Loss over learning_rate"
    )
    # What the job does not report has no chart.
    expect(chart(page, "Accuracy")).to_have_count(0)

    pin = page.get_by_role("button", name="Pin Gradient norm")
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    expect(page.locator("figure[data-chart]").first).to_contain_text("Gradient norm")
    page.get_by_role("textbox", name="Filter charts").fill("rate$|^loss")
    expect(chart(page, "Learning rate")).to_be_visible()
    expect(chart(page, "Gradient norm")).to_have_count(0)
    expect(page).to_have_url(re.compile("charts="))


def test_legend_shows_the_points_at_the_cursor(page: Page, jobs: list[str]) -> None:
    page.goto(f"/jobs/{jobs[0]}")
    loss = chart(page, "Loss")
    keys = loss.locator("figcaption")
    expect(keys).to_contain_text(re.compile(r"validation\d"))
    plot = loss.locator(".u-over")
    expect(plot).to_be_visible()
    box = plot.bounding_box()
    assert box
    plot.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    expect(keys).to_contain_text(re.compile(r"step (19|20)\d"))
    # The only validation was at the end.
    expect(keys).to_contain_text(re.compile("validation—$"))
    plot.hover(position={"x": box["width"] - 1, "y": box["height"] / 2})
    expect(keys).to_contain_text(re.compile(r"validation\d"))


def test_compare_shows_curves_and_spec_differences(page: Page, jobs: list[str]) -> None:
    page.goto("/jobs")
    for name in ("slow-learner", "fast-learner"):
        # The address holds what is selected, and changes a moment after the click.
        box = page.get_by_role("checkbox", name=f"Select {name}")
        box.click()
        expect(box).to_be_checked()
    page.get_by_role("link", name="Compare 2").click()
    expect(page).to_have_url(re.compile("/compare"))
    loss = chart(page, "Loss")
    expect(loss.locator("canvas")).to_be_visible()
    for name in ("slow-learner", "fast-learner"):
        expect(loss.get_by_text(name)).to_be_visible()
    table = page.get_by_role("table", name="Spec differences")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(table.get_by_role("row").last).to_have_text("training.learning_rate0.0010.01")
    page.get_by_text("Results: ").click()
    results = page.get_by_role("table", name="Results").get_by_role("row")
    expect(results.filter(has_text="eval_loss").get_by_title("best")).to_be_visible()

    def color(name: str) -> str | None:
        keys = page.get_by_role("listitem").filter(has_text=name)
        return keys.locator("line").get_attribute("stroke")

    kept = color("fast-learner")
    page.get_by_role("button", name="Remove slow-learner").click()
    expect(page.get_by_role("listitem").filter(has_text="slow-learner")).to_have_count(0)
    assert color("fast-learner") == kept
    page.reload()
    expect(page.get_by_role("listitem").filter(has_text="fast-learner")).to_be_visible()
    assert color("fast-learner") == kept
    expect(page).to_have_title(re.compile("^Compare fast-learner"))


LONG = """
for i in range(30_000):
    print("\\x1b[32mstep\\x1b[0m", i, "needle" if i % 10_000 == 5_000 else "hay")
print("the end", flush=True)
"""


def test_long_log_is_searched(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(LONG)
    job = cluster.submit({"name": "long-log", "script": {"path": str(script)}})
    cluster.wait_for(job, "completed")
    page.goto(f"/jobs/{job}")
    # A script without metrics opens on its logs, and has no tiles.
    log = page.get_by_role("log")
    expect(log.get_by_text("the end")).to_be_visible()
    expect(page.locator("dd[data-metric]")).to_have_count(0)
    find = page.get_by_role("textbox", name="Find in the logs")
    find.fill("STEP 5000 needle")
    matches = page.get_by_role("status", name="Matches")
    expect(matches).to_have_text("1 match", timeout=SLOW)
    find.fill("needle")
    expect(matches).to_have_text("3 matches", timeout=SLOW)
    find.press("Enter")
    expect(matches).to_have_text("1 of 3")
    chosen = log.locator("[data-chosen]")
    expect(chosen).to_contain_text("step 5000 needle")
    expect(chosen.locator("mark")).to_have_text("needle")
    page.get_by_role("button", name="Next match").click()
    expect(chosen).to_contain_text("step 15000 needle")
    find.press("Shift+Enter")
    expect(chosen).to_contain_text("step 5000 needle")

    expect(page).to_have_url(re.compile(r"find=needle&line=1\.0\.stdout\.\d+"))
    page.reload()
    expect(chosen).to_contain_text("step 5000 needle")
    expect(matches).to_have_text("1 of 3", timeout=SLOW)
    page.get_by_role("switch", name="Times").click()
    expect(chosen.locator("time")).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))
    page.get_by_role("switch", name="Wrap").click()
    expect(page).to_have_url(re.compile("wrap=true"))
    expect(chosen).to_contain_text("step 5000 needle")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 30_001
    # Back at the end, where news are.
    page.get_by_role("switch", name="Follow").click()
    expect(log.get_by_text("the end")).to_be_visible()


def test_timeline_shows_the_failure(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    # A script that ends at once may do so between two reports, and never be seen to run.
    script, seen = tmp_path / "fails.py", tmp_path / "seen"
    script.write_text(
        "import pathlib, sys, time\n"
        f"while not pathlib.Path({str(seen)!r}).exists():\n    time.sleep(0.02)\n"
        "sys.exit('the data are gone')\n"
    )
    job = cluster.submit(
        {"name": "fails", "script": {"path": str(script)}, "recovery": {"max_restarts": 0}}
    )
    cluster.wait_for(job, "running")
    seen.touch()
    cluster.wait_for(job, "failed")
    page.goto(f"/jobs/{job}?tab=timeline")
    attempt = page.get_by_role("region", name="Attempt 1", exact=True)
    expect(attempt).to_contain_text("the data are gone")
    expect(attempt).to_contain_text("rank 0 · exit code 1")
    expect(page.get_by_role("figure", name="States over time")).to_contain_text("running")
    attempt.get_by_role("link", name="View logs").click()
    expect(page.get_by_role("log").get_by_text("the data are gone")).to_be_visible()
    expect(page).to_have_url(re.compile("rank=0"))


def test_zoom_keeps_the_scroll_position(page: Page, jobs: list[str]) -> None:
    page.set_viewport_size({"width": 1000, "height": 500})
    page.goto(f"/jobs/{jobs[0]}")
    # A plot is there once it is on the screen.
    chart(page, "Gradient norm").scroll_into_view_if_needed()
    low = chart(page, "Gradient norm").locator(".u-over")
    expect(low).to_be_visible()
    low.scroll_into_view_if_needed()
    before = page.evaluate("window.scrollY")
    assert before > 0
    drag(page, low, 0.25, 0.5)
    expect(page).to_have_url(re.compile("from="))
    # What is read anew is drawn by then.
    expect(page.get_by_text(re.compile("^steps [0-9,]+ to [0-9,]+$"))).to_be_visible()
    assert page.evaluate("window.scrollY") == before
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    rows = Path(download.value.path()).read_text().splitlines()
    assert rows[0].startswith("step,loss,")
    assert len(rows) == 401


def test_finished_job_can_be_submitted_again(page: Page, jobs: list[str]) -> None:
    page.goto(f"/jobs/{jobs[0]}")
    expect(page.get_by_test_id("job-state")).to_have_text("completed")
    tiles = page.locator("dd[data-metric=loss] + dd")
    expect(tiles).to_have_text("mean of the last 20 steps")
    expect(page.get_by_role("status").filter(has_text=re.compile("^live$"))).to_have_count(0)
    # The state is shown once.
    expect(page.get_by_text("completed", exact=True)).to_have_count(1)
    page.get_by_role("link", name="Submit again").click()
    expect(page.locator(".cm-content")).to_contain_text("name: slow-learner")


def test_stepless_script_shows_time_and_last_line(
    page: Page, cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "silent.py"
    script.write_text("import time\nprint('epoch 4 of 9', flush=True)\ntime.sleep(600)\n")
    job = cluster.submit({"name": "silent", "script": {"path": str(script)}})
    page.goto(f"/jobs/{job}")
    expect(page.get_by_test_id("elapsed")).to_have_text(re.compile(r"^\d+ s so far$"), timeout=SLOW)
    header = page.locator("header").filter(has=page.get_by_test_id("job-state"))
    expect(header.get_by_text("epoch 4 of 9")).to_be_visible(timeout=SLOW)
    page.goto("/jobs?search=silent")
    row = page.locator(f'tr[data-job="{job}"]')
    expect(row).to_contain_text("so far")
    expect(row).to_contain_text("epoch 4 of 9", timeout=SLOW)
    cluster.request("DELETE", f"/training/jobs/{job}")
    expect(row).to_contain_text("cancelled")


def test_trace_opens_and_loads_nothing_elsewhere(page: Page, cluster: Cluster) -> None:
    job = cluster.submit(quick("traced", steps=1_000_000))
    cluster.wait_for_step(job, 2)
    page.goto(f"/jobs/{job}?tab=profiles")
    page.get_by_role("button", name="Profile steps").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Steps").fill("3")
    dialog.get_by_role("button", name="Profile steps").click()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_role("button", name="Open rank 0").click(timeout=SLOW)
    speedscope = page.frame_locator("iframe[title='Trace in speedscope']")
    speedscope.get_by_text("Sandwich").click()
    expect(speedscope.get_by_text("aten::addmm", exact=True)).to_be_visible()
    page.get_by_role("button", name="Close the trace").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert any(url.startswith("blob:") for url in requests)
    assert not [url for url in requests if not url.removeprefix("blob:").startswith(cluster.url)]


def test_speedscope_requests_no_address_of_a_link(page: Page, cluster: Cluster) -> None:
    other = page.context.new_page()  # it complains on its console
    answered: list[str] = []
    other.on("response", lambda response: answered.append(response.url))
    for address in ("http://127.0.0.1:9/trace", f"{cluster.url}/api/v1/training/jobs"):
        # Another query makes it another page, not another part of the same one.
        with other.expect_event("console", lambda message: "connect-src" in message.text):
            other.goto(f"/speedscope/index.html?{len(address)}#profileURL={quote(address)}")
        assert address not in answered
