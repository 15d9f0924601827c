"""A job's page under load: charts of a million points, scrolling, memory over live data.

    python -m benchmarks.coordinator.page [--points 1000000] [--charts 20] [--minutes 0.5]

A real Chromium (the system's, headless) opens the page of a job with so many series. Frame times
are taken while it scrolls; then points come in live, and its heap is read after a garbage
collection. Without Chromium only the API is measured.
"""

import argparse
import asyncio
import itertools
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from playwright.sync_api import CDPSession, Page, sync_playwright

from benchmarks.coordinator.history import ROWS, fill, milliseconds
from benchmarks.coordinator.server import JOB_ID, Connection, Server, batch, coordinator
from benchmarks.report import Figure, report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
CHART_POINTS = 1500
"""As many as the page asks for."""
LIVE_ROWS = 5
LIVE_BATCHES_PER_SECOND = 10
READINGS = 30
"""Of the page's memory, over the time of live data."""
MEBIBYTE = 1024 * 1024

SCROLL = """
async () => {
  const frames = [];
  let last = await new Promise(requestAnimationFrame);
  const end = document.documentElement.scrollHeight - innerHeight;
  for (let i = 0; i <= 600; i++) {
    // Down and up again, two times.
    const at = (i / 150) % 2;
    window.scrollTo(0, end * (at < 1 ? at : 2 - at));
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return frames.slice(1);
}
"""


@contextmanager
def live(server: Server, names: list[str], behind: int) -> Iterator[None]:
    """Points that come in as those of a job that trains, with the steps behind the stored ones."""
    ended = threading.Event()

    async def send() -> None:
        connection = await Connection.open(server.port)
        path = server.metrics_path(rank=1)
        for sequence in itertools.count(1):
            body = batch(sequence, 1, LIVE_ROWS, names, behind=behind)
            await connection.request("POST", path, body, server.credential)
            if ended.is_set():
                break
            await asyncio.sleep(1 / LIVE_BATCHES_PER_SECOND)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Held:
    """What the page holds after a garbage collection."""

    heap: float
    """Mebibytes."""
    nodes: int
    listeners: int

    @classmethod
    def read(cls, devtools: CDPSession) -> Self:
        for _ in range(3):
            devtools.send("HeapProfiler.collectGarbage")
        counted = devtools.send("Memory.getDOMCounters")
        used = float(devtools.send("Runtime.getHeapUsage")["usedSize"])
        return cls(used / MEBIBYTE, counted["nodes"], counted["jsEventListeners"])


def find_browser() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def browse(server: Server, names: list[str], options: argparse.Namespace) -> list[Figure]:
    path = find_browser()
    if path is None:
        print(f"no browser: none of {', '.join(BROWSERS)}")
        return []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = chromium.new_page(viewport={"width": 1360, "height": 900})
        try:
            return [*scrolling(page, server, options), *memory(page, server, names, options)]
        finally:
            chromium.close()


def scrolling(page: Page, server: Server, options: argparse.Namespace) -> list[Figure]:
    page.goto(server.login_link())
    page.wait_for_url(lambda url: "/login" not in url)
    begun = time.perf_counter()
    page.goto(f"{server.url}/jobs/{JOB_ID}")
    page.locator("figure[data-chart] canvas").first.wait_for()
    opened = time.perf_counter() - begun
    charts = page.locator("figure[data-chart]").count()
    page.wait_for_timeout(2000)
    print(f"{charts} charts; the first was drawn after {1000 * opened:.0f} ms")
    frames = sorted(page.evaluate(SCROLL))
    return [
        Figure("first chart drawn", 1000 * opened, "ms"),
        Figure("frame while scrolling, median", statistics.median(frames), "ms"),
        Figure("frame while scrolling, p95", frames[int(0.95 * len(frames))], "ms", at_most=34),
        Figure("frame while scrolling, longest", frames[-1], "ms", at_most=100),
    ]


def memory(
    page: Page, server: Server, names: list[str], options: argparse.Namespace
) -> list[Figure]:
    """The heap is a saw: each series fills up and is merged to half. So its peaks are compared."""
    devtools = page.context.new_cdp_session(page)
    readings: list[Held] = []
    with live(server, names, options.points):
        page.wait_for_timeout(10_000)  # until whatever is made once is made
        points = last_step(page)
        deadline = time.monotonic() + 60 * options.minutes
        pause = 60_000 * options.minutes / READINGS
        while time.monotonic() < deadline:
            page.wait_for_timeout(pause)
            readings.append(held := Held.read(devtools))
            print(
                f"step {last_step(page):,}: heap {held.heap:.1f} MiB, {held.nodes:,} DOM nodes,"
                f" {held.listeners:,} listeners",
                flush=True,
            )
        came = last_step(page) - points
    print(f"{came * len(names):,} points came in")
    third = max(1, len(readings) // 3)
    first, last = readings[:third], readings[-third:]
    before = max(held.heap for held in first)
    return [
        Figure("heap of the page, most in the first third", before, "MiB"),
        Figure("added in the last third", max(h.heap for h in last) - before, "MiB", at_most=1),
        Figure("DOM nodes added", max(h.nodes for h in last) - max(h.nodes for h in first), ""),
        Figure(
            "listeners added", max(h.listeners for h in last) - max(h.listeners for h in first), ""
        ),
    ]


def last_step(page: Page) -> int:
    text = page.get_by_test_id("step").inner_text().split()[1]
    return int(text.replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000, help="of each series")
    parser.add_argument("--charts", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=0.5, help="of live data")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    names = ["loss", *(f"metric_{number:02d}" for number in range(1, options.charts))]
    with coordinator() as server:
        asyncio.run(fill(server, options.points, names))
        query = f"max_points={CHART_POINTS}"
        took, count = asyncio.run(milliseconds(server, query, options.rounds))
        print(f"{options.points:,} points as {count}; {len(names)} series; packed by {ROWS} rows")
        figures = browse(server, names, options)
    report(Figure("data of a chart", took, "ms", at_most=50), *figures)


if __name__ == "__main__":
    main()
