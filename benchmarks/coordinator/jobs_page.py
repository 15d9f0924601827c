"""The list of 10,000 jobs in a browser: the longest task while it scrolls from end to end.

    python -m benchmarks.coordinator.jobs_page [--jobs 10000]

A real Chromium (the system's, headless) scrolls down through all jobs, which are loaded on the way,
and up again. Users feel tasks of its main thread over 50 ms. The times are processor time of that
thread, which other processes of this host do not change.
"""

import argparse
import asyncio
import json
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.coordinator.job_lists import fill
from benchmarks.coordinator.page import FLAGS, find_browser
from benchmarks.coordinator.server import Server, coordinator
from benchmarks.report import Figure, report
from trainhall.db.database import Database

LIMIT_MS = 50
PIXELS = 300
"""Of each frame: five rows, or a screen in three frames."""
SCROLL = """
async ([count, step]) => {
  const rows = () => Number(document.querySelector("table").getAttribute("aria-rowcount")) - 1;
  const end = () => document.documentElement.scrollHeight - innerHeight;
  const isOver = () => (step < 0 ? scrollY <= 0 : rows() >= count && scrollY >= end() - 1);
  const deadline = performance.now() + 600_000;
  let drawn = 0;
  while (!isOver() && performance.now() < deadline) {
    window.scrollBy(0, step);
    await new Promise(requestAnimationFrame);
    drawn = Math.max(drawn, document.querySelectorAll("tr[data-job]").length);
  }
  return { rows: rows(), drawn, over: isOver() };
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args()
    with coordinator() as server:
        asyncio.run(fill(Database(server.database_url), options.jobs))
        down, up = browse(server, options.jobs)
    report(
        Figure("longest task, down while jobs are loaded", down[0], "ms", at_most=LIMIT_MS),
        Figure("longest task, up again", up[0], "ms", at_most=LIMIT_MS),
        Figure("rows drawn", max(down[1], up[1]), "", at_most=60),
    )


def browse(server: Server, jobs: int) -> list[tuple[float, int]]:
    """Return the longest task in milliseconds, and the most rows drawn, on the way down and up."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = chromium.new_page(viewport={"width": 1360, "height": 900})
        page.goto(server.login_link())
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(f"{server.url}/jobs")
        page.locator("tr[data-job]").first.wait_for()
        # The job of `coordinator` is listed, too.
        both = [scroll(chromium, page, jobs + 1, step) for step in (PIXELS, -PIXELS)]
        chromium.close()
        return both


def scroll(chromium: Browser, page: Page, jobs: int, step: int) -> tuple[float, int]:
    chromium.start_tracing(page=page, categories=["toplevel"])
    seen: dict[str, Any] = page.evaluate(SCROLL, [jobs, step])
    tasks = main_thread_tasks(json.loads(chromium.stop_tracing())["traceEvents"])
    if not seen["over"]:
        raise RuntimeError(f"{seen['rows']} of {jobs} jobs were loaded in 10 minutes")
    print(f"longest tasks, ms: {', '.join(f'{task:.0f}' for task in tasks[:10])}")
    return tasks[0], seen["drawn"]


def main_thread_tasks(events: list[dict[str, Any]]) -> list[float]:
    """Return the processor time of each task in milliseconds, the longest first."""
    main_threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return sorted(
        (
            event.get("tdur", 0) / 1000
            for event in events
            if event["name"] == "ThreadControllerImpl::RunTask"
            and (event["pid"], event["tid"]) in main_threads
        ),
        reverse=True,
    )


if __name__ == "__main__":
    main()
