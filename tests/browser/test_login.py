"""The login by a link, and what a browser keeps of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from structlog.testing import capture_logs
from support.cluster.web import bearer, served

from trainhall.api.app import create_app
from trainhall.api.settings import Settings

pytestmark = pytest.mark.browser


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A coordinator that asks for a login."""
    settings = Settings(data_dir=tmp_path, database_url=f"sqlite:///{tmp_path}/trainhall.db")
    with capture_logs(), served(create_app(settings)) as address:
        yield address


@pytest.fixture
def context(browser: Browser, url: str) -> Iterator[BrowserContext]:
    """A browser without a login."""
    made = browser.new_context(base_url=url)
    made.set_default_timeout(40_000)
    expect.set_options(timeout=40_000)
    yield made
    made.close()


def new_link(url: str, folder: Path) -> str:
    made = httpx.post(f"{url}/api/v1/auth/codes", headers=bearer(folder)).json()
    return f"{url}/login#code={made['code']}"


def test_link_opens_the_page_that_needed_it(
    context: BrowserContext, url: str, tmp_path: Path
) -> None:
    first = context.new_page()
    first.goto("/nodes")
    expect(first.get_by_text("trainhall open")).to_be_visible()
    link = new_link(url, tmp_path)
    second = context.new_page()
    second.goto(link)
    expect(second.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    assert second.url == f"{url}/nodes"
    visited = second.evaluate("() => performance.getEntriesByType('resource').map((e) => e.name)")
    assert not [address for address in visited if "code=" in address]
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in second.evaluate("() => JSON.stringify({...localStorage})")
    second.go_back()
    assert "code" not in second.url


def test_ended_session_leads_to_the_login_and_back(
    context: BrowserContext, url: str, tmp_path: Path
) -> None:
    page = context.new_page()
    page.goto(new_link(url, tmp_path))
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    page.goto("/nodes?search=gpu")
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    sessions = f"{url}/api/v1/auth/sessions"
    for session in httpx.get(sessions, headers=bearer(tmp_path)).json()["items"]:
        httpx.delete(f"{sessions}/{session['id']}", headers=bearer(tmp_path)).raise_for_status()
    page.get_by_label("Or paste the link here").fill(new_link(url, tmp_path))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    assert page.url == f"{url}/nodes?search=gpu"


def test_user_logs_out_and_in_again(context: BrowserContext, url: str, tmp_path: Path) -> None:
    page = context.new_page()
    page.goto(new_link(url, tmp_path))
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    page.get_by_role("button", name="User ").click()
    page.get_by_role("menuitem", name="Log out").click()
    expect(page.get_by_text("trainhall open")).to_be_visible()
    assert context.cookies() == []
    page.get_by_label("Or paste the link here").fill(new_link(url, tmp_path))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
