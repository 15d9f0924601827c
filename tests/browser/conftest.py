"""A real Chromium in front of a real cluster of processes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    expect,
    sync_playwright,
)
from support.cluster.cluster import Cluster, running_cluster

from trainhall import api

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Milliseconds: a bound for a loaded machine, not an expectation.
PATIENCE = 40_000
# What a browser itself says about a coordinator that is away or that refuses, which the page shows,
# and about drawing without a GPU.
EXPECTED = ("Failed to load resource", "WebSocket connection to", "[.WebGL")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a file.

    Playwright's synchronous face keeps an event loop running in this thread for as long as it is
    open, and other tests need a thread without one.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"NO CHROMIUM, the dashboard is not tested: none of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of a file; each submits jobs of its own."""
    built = Path(api.__file__).parent / "static" / "index.html"
    if not built.exists():
        pytest.fail("the dashboard is not built: `npm ci && npm run build` in dashboard/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINHALL_GROW_AFTER", "0.5")
        # Planners of benchmarks import torch.
        with running_cluster(tmp_path_factory.mktemp("cluster"), forks_scripts=True) as running:
            yield running


def login_cookies(cluster: Cluster) -> list[Any]:
    """The cookies of a browser that its admin has logged in."""
    code = cluster.post("/auth/codes")["code"]
    reply = httpx.post(f"{cluster.url}/api/v1/auth/link", json={"code": code})
    assert reply.is_success, reply.text
    return [
        {"name": name, "value": value, "url": cluster.url, "httpOnly": True, "sameSite": "Strict"}
        for name, value in reply.cookies.items()
    ]


@pytest.fixture
def page(browser: Browser, cluster: Cluster) -> Iterator[Page]:
    """A fresh page; whatever it complains about on its console fails the test."""
    complaints: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            complaints.append(message.text)

    def on_error(error: Error) -> None:
        complaints.append(str(error))

    # Badges that breathe are a tenth of a processor, for as long as a page shows one.
    context = browser.new_context(
        base_url=cluster.url, viewport={"width": 1360, "height": 900}, reduced_motion="reduce"
    )
    context.add_cookies(login_cookies(cluster))
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page.on("console", on_console)
    page.on("pageerror", on_error)
    yield page
    context.close()
    # What a test left running would hold the devices that the next one needs.
    cluster.start_what_ended()
    cluster.cancel_everything()
    assert not complaints
