"""The rules of axe on every page, in both colour schemes, on a desktop and on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from support.cluster.cluster import Program
from support.pages import navigate
from support.ports import reserve
from support.waiting import eventually

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1440), ("dark", 390))
"""Colour scheme and width. No rule depends on both: the other two pairs would find nothing new."""
FIND = """async () => (await axe.run(document, {resultTypes: ["violations"]}))
    .violations.filter(({impact}) => impact === "serious" || impact === "critical")
    .flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html}`))"""
SWEEP = {
    "name": "learning rate",
    "kind": "sweep",
    "job": {"name": "gpt", "task": {"name": "synthetic"}},
    "space": {"training.learning_rate": {"log": [0.0001, 0.1]}},
    "method": "random",
    "trials": 4,
    "objective": {"metric": "loss"},
    "early_stopping": {"asha": {"min_steps": 10, "max_steps": 90}},
}
JOB_TABS = ("Curves", "Timeline", "Logs", "Checkpoints", "Gradients", "Spec")
EXPERIMENT_TABS = ("Trials", "Analysis", "Spec")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A coordinator in mock mode, whose pages have something of everything."""
    folder = tmp_path_factory.mktemp("mock")
    env = {"TMPDIR": str(folder)}
    program = Program("coordinator", [], folder, env, "support.forking.mock:main")
    port = reserve(program)
    program.arguments = ["server", "--mock", "--port", str(port)]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:

        def is_ready() -> bool:
            assert not program.ended(), program.output()
            try:
                return client.get("/readyz").is_success
            except httpx.TransportError:
                return False

        program.start()
        eventually("the history of mock mode", is_ready, timeout=120)
        yield client
        program.kill()


DIALOGS = {
    "/users": ("New user", "New group"),
    "/projects": ("New project",),
    "/projects/default": ("Change limits", "Add a member"),
    "/tokens": ("New token",),
    "/nodes?view=table&open=gpu-01": ("Projects of gpu-01", "Drain gpu-01"),
    "/alerts": ("New alert",),
}
"""Buttons that open a dialog, by the address of their page."""
ALERT = {"name": "failed jobs", "on": ["job.failed"], "target": {"kind": "browser"}}


def pages(client: httpx.Client) -> dict[str, str]:
    """The content to wait for, by the address of each page; the jobs fill their tabs."""

    def created(reply: httpx.Response) -> Any:
        assert reply.is_success, reply.text
        return reply.json()

    jobs = created(client.get("/api/v1/training/jobs", params={"limit": 100}))["items"]
    failed = next(job["id"] for job in jobs if job["state"] == "failed")
    running = next(job["id"] for job in jobs if job["state"] == "running")
    experiment = created(client.post("/api/v1/experiments", json=SWEEP))["id"]
    created(client.post("/api/v1/alerts", json=ALERT))
    titles = {
        "/jobs": "Jobs", "/queue": "Queue", "/nodes": "Nodes", "/new": "New job",
        "/alerts": "Alerts", "/ledger": "Ledger", "/reports/new": "New report",
        "/what-if": "What if",
        "/projects": "Projects", "/projects/default": "default", "/users": "Users",
        "/tokens": "API tokens", "/sessions": "Sessions", "/audit": "Audit",
        "/reports": "Reports", "/experiments": "Experiments", "/experiments/new": "New experiment",
        "/login": "Log in to Trainhall", "/login/device": "Log in commands",
        "/nowhere": "Page not found", f"/compare?jobs={failed},{running}": "Compare",
    }  # fmt: skip
    tabs = [(f"/jobs/{failed}", "Timeline")]
    tabs += [(f"/jobs/{running}", tab) for tab in JOB_TABS]
    tabs += [(f"/experiments/{experiment}", tab) for tab in EXPERIMENT_TABS]
    return {address: f"h1:text-is('{title}')" for address, title in titles.items()} | {
        f"{address}?tab={tab.lower()}": f"[role=tab][aria-selected=true]:has-text('{tab}')"
        for address, tab in tabs
    }


def violations(page: Page) -> list[str]:
    """Serious and critical ones."""
    found = []
    for scheme, width in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        expect(page.locator(f"html[data-mantine-color-scheme={scheme}]")).to_be_attached()
        found += [f"{page.url} {scheme}, {width} px: {each}" for each in page.evaluate(FIND)]
    return found


def test_pages_have_no_serious_violation(browser: Browser, simulated: httpx.Client) -> None:
    context = browser.new_context(base_url=str(simulated.base_url), reduced_motion="reduce")
    context.add_init_script(path=AXE)
    page = context.new_page()
    page.goto("/")
    # Between two colour schemes a colour has neither's contrast.
    page.add_style_tag(content="*, ::before, ::after {transition: none !important}")
    found = []
    for address, content in pages(simulated).items():
        navigate(page, address)
        expect(page.locator(content).first).to_be_visible()
        expect(page.locator(".mantine-Skeleton-root")).to_have_count(0)
        found += violations(page)
    for address, names in DIALOGS.items():
        for name in names:
            navigate(page, address)
            page.get_by_role("button", name=name, exact=True).first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
            found += violations(page)
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)
    context.close()
    assert found == []
