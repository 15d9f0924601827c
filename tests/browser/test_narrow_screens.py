"""The dashboard on a phone: no tab and no button lies outside what is seen."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from support.cluster.cluster import Cluster
from support.pages import navigate

pytestmark = pytest.mark.browser

WIDTH = 390
SPEC: dict[str, Any] = {
    "name": "on-a-phone",
    "task": {"name": "synthetic", "params": {"features": 8, "hidden": [8]}},
    "training": {"steps": 30, "global_batch_size": 8},
    "checkpoint": {"every_steps": 10},
}
PAGES = {
    "/jobs": "Jobs",
    "/experiments": "Experiments",
    "/nodes": "Nodes",
    "/queue": "Queue",
    "/ledger": "Ledger",
    "/what-if": "What if",
    "/alerts": "Alerts",
    "/reports": "Reports",
    "/reports/new": "New report",
    "/projects": "Projects",
    "/projects/default": "default",
    "/users": "Users",
    "/tokens": "API tokens",
    "/sessions": "Sessions",
    "/audit": "Audit",
    "/new": "New job",
    "/experiments/new": "New experiment",
}
"""The title of each, by its address."""


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> str:
    """One that is done and has saved."""
    job_id = cluster.submit(SPEC)
    cluster.wait_for(job_id, "completed", timeout=120)
    return job_id


@pytest.fixture
def phone(page: Page) -> Page:
    page.set_viewport_size({"width": WIDTH, "height": 900})
    return page


def outside(controls: Locator) -> list[str]:
    """Those of which a part lies beside the window."""
    found = []
    for control in controls.all():
        box = control.bounding_box()
        assert box
        if box["x"] < 0 or box["x"] + box["width"] > WIDTH:
            name = control.get_attribute("aria-label") or control.inner_text()
            found.append(f"{name} at {box['x']:.0f} to {box['x'] + box['width']:.0f}")
    return found


def test_narrow_screen_shows_every_tab_and_command(phone: Page, job: str) -> None:
    phone.goto(f"/jobs/{job}")
    tabs = phone.get_by_role("tab")
    expect(tabs).to_have_count(8)
    assert outside(tabs) == []
    for name in tabs.all_inner_texts():
        phone.get_by_role("tab", name=name, exact=True).click()
        panel = phone.get_by_role("tabpanel", name=name, exact=True)
        expect(panel).to_be_visible()
        expect(panel.locator(".mantine-Skeleton-root")).to_have_count(0)
        assert outside(phone.get_by_role("button")) == [], name


def test_every_checkpoint_has_its_commands(phone: Page, job: str) -> None:
    phone.goto(f"/jobs/{job}?tab=checkpoints")
    table = phone.get_by_role("table", name="Checkpoints")
    for step in (10, 20, 30):
        commands = table.get_by_role("button", name=f"step {step}")
        expect(commands).to_have_count(3)
        assert outside(commands) == []
    row = table.get_by_role("row").filter(has=phone.get_by_role("button", name="Pin step 20"))
    for part in ("20", "saved", "loss"):
        expect(row.get_by_text(part).first).to_be_visible()
    row.get_by_role("button", name="Pin step 20").click()
    expect(row.get_by_text("pinned")).to_be_visible()


def test_every_command_of_a_page_is_in_sight(phone: Page, job: str) -> None:
    phone.goto("/jobs")
    for address, title in PAGES.items():
        navigate(phone, address)
        expect(phone.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
        expect(phone.locator(".mantine-Skeleton-root")).to_have_count(0)
        assert outside(phone.get_by_role("button")) == [], address


@pytest.mark.parametrize("simulated", [False, True])
def test_narrow_screen_shows_every_page_in_the_header(phone: Page, simulated: bool) -> None:
    health = {"status": "ok", "version": "1", "simulated": simulated}
    phone.route("**/healthz", lambda route: route.fulfill(json=health))
    phone.goto("/new")
    expect(phone.get_by_text("simulated", exact=True)).to_have_count(int(simulated))
    links = phone.get_by_role("navigation", name="Main").get_by_role("link")
    expect(links).to_have_text(
        ["Jobs", "Experiments", "Reports", "Queue", "Nodes", "Ledger", "Alerts", "New job"]
    )
    assert outside(links) == []
