"""Two users in two projects, each with a browser: neither sees the other's job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from structlog.testing import capture_logs
from support.cluster.web import bearer, served
from support.pages import navigate

from trainhall.api.app import create_app
from trainhall.api.settings import Settings

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"
PROJECTS = {"maria": "vision", "otto": "speech"}
CLOSE_CODE = """(path) => new Promise((closed) => {
    const socket = new WebSocket(location.origin.replace("http", "ws") + path);
    socket.onclose = ({code}) => closed(code);
    socket.onmessage = () => { closed("a frame"); socket.close(); };
})"""


class Someone(NamedTuple):
    """A user with a browser and a job that waits."""

    page: Page
    job_id: str
    job: str


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A coordinator without nodes, so that jobs wait."""
    settings = Settings(data_dir=tmp_path, database_url=f"sqlite:///{tmp_path}/trainhall.db")
    with capture_logs(), served(create_app(settings)) as address:
        yield address


def admin_of(url: str, folder: Path) -> Callable[..., httpx.Response]:
    def request(method: str, path: str, **json: object) -> httpx.Response:
        reply = httpx.request(method, f"{url}/api/v1{path}", headers=bearer(folder), json=json)
        assert reply.is_success, reply.text
        return reply

    return request


def logged_in(browser: Browser, url: str, user: str) -> BrowserContext:
    reply = httpx.post(f"{url}/api/v1/auth/login", json={"name": user, "password": PASSWORD})
    assert reply.is_success, reply.text
    context = browser.new_context(base_url=url, reduced_motion="reduce")
    context.add_cookies(
        [{"name": name, "value": value, "url": url} for name, value in reply.cookies.items()]
    )
    context.set_default_timeout(40_000)
    return context


@pytest.fixture
def people(browser: Browser, url: str, tmp_path: Path) -> Iterator[dict[str, Someone]]:
    expect.set_options(timeout=40_000)
    request = admin_of(url, tmp_path)
    found = {}
    for user, project in PROJECTS.items():
        request("POST", "/users", name=user, password=PASSWORD)
        request("POST", "/projects", name=project)
        request("PUT", f"/projects/{project}/members/{user}", role="member")
        name = f"canary-of-{user}"
        task = {"name": "synthetic"}
        spec = {"name": name, "user": user, "project": project, "task": task}
        job_id = request("POST", "/training/jobs", **spec).json()["id"]
        found[user] = Someone(logged_in(browser, url, user).new_page(), job_id, name)
    yield found
    for each in found.values():
        each.page.context.close()


def test_neither_of_two_users_sees_the_other(people: dict[str, Someone]) -> None:
    for user, other in (("maria", people["otto"]), ("otto", people["maria"])):
        page, own_id, own = people[user]
        page.goto("/jobs")
        expect(page.get_by_role("link", name=own)).to_be_visible()
        expect(page.get_by_text(PROJECTS[user]).first).to_be_visible()
        assert other.job not in page.content()
        # Search, and by the words of the query.
        for search in (f"search={other.job}", f"search={other.job_id}", "query=state:queued -own"):
            navigate(page, f"/jobs?{search}")
            expect(page.get_by_role("heading", level=1, name="Jobs")).to_be_visible()
            expect(page.get_by_role("link", name=other.job)).to_have_count(0)
        navigate(page, f"/jobs/{other.job_id}")
        expect(page.get_by_role("heading", name="Job not found")).to_be_visible()
        navigate(page, "/queue")
        expect(page.get_by_role("link", name=own)).to_be_visible()
        expect(page.get_by_text("a job of another project").first).to_be_visible()
        content = page.content()
        assert (other.job in content, other.job_id in content) == (False, False)
        assert page.evaluate(CLOSE_CODE, f"/api/v1/metrics/stream/{other.job_id}") == 4404
        navigate(page, f"/jobs/{own_id}")
        expect(page.get_by_role("heading", level=1, name=own)).to_be_visible()
        expect(page.get_by_role("link", name=user, exact=True)).to_be_visible()
