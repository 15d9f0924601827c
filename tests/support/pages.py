"""Going from page to page of the dashboard without loading all of it again."""

from playwright.sync_api import Page

_NAVIGATE = """address => {
    history.pushState(null, "", address);
    dispatchEvent(new PopStateEvent("popstate"));
}"""


def navigate(page: Page, address: str) -> None:
    """Follow a link of the dashboard; a new document would cost a second of a processor."""
    page.evaluate(_NAVIGATE, address)
