"""The login by a provider of another site, and the approval of commands."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect
from structlog.testing import capture_logs
from support.cluster.web import served
from support.login.oidc_provider import WARNS, TestProvider, provider

from trainhall.api.app import create_app
from trainhall.api.host.oidc_settings import OidcSettings
from trainhall.api.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings(WARNS)]


@pytest.fixture
def idp() -> Iterator[TestProvider]:
    with provider() as made:
        yield made


@pytest.fixture
def url(tmp_path: Path, idp: TestProvider) -> Iterator[str]:
    """A coordinator that knows the provider."""
    secret = tmp_path / "client.secret"
    secret.write_text("s3cret")
    oidc = OidcSettings(
        issuer=idp.issuer, client_id="trainhall", client_secret_file=secret, name="Lab"
    )
    database = f"sqlite:///{tmp_path}/trainhall.db"
    settings = Settings(data_dir=tmp_path / "data", database_url=database, oidc=oidc)
    with capture_logs(), served(create_app(settings)) as address:
        yield address


def test_user_of_a_provider_approves_commands(
    browser: Browser, url: str, idp: TestProvider
) -> None:
    idp.set_user("1", preferred_username="maria")
    asked = {"client": "gpu-07"}
    begun = httpx.post(f"{url}/api/v1/auth/device", json=asked).json()
    context = browser.new_context(base_url=url)
    context.set_default_timeout(40_000)
    page = context.new_page()
    page.goto("/login/device")
    page.get_by_role("link", name="Log in with Lab").click()
    page.locator("input[name=sub]").first.fill("1")
    page.keyboard.press("Enter")
    # The cookie is Strict, and the browser comes from another site.
    expect(page.get_by_label("Code")).to_be_visible(timeout=40_000)
    assert page.url == f"{url}/login/device"
    (cookie,) = [each for each in context.cookies() if each["domain"] == "127.0.0.1"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.get_by_label("Code").fill(begun["user_code"])
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("maria")).to_be_visible(timeout=40_000)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Login approved")).to_be_visible(timeout=40_000)
    device = {"device_code": begun["device_code"]}
    given = httpx.post(f"{url}/api/v1/auth/device/token", json=device).json()
    mine = {"Authorization": f"Bearer {given['token']['token']}"}
    assert httpx.get(f"{url}/api/v1/auth/me", headers=mine).json()["user"] == "maria"
    context.close()
