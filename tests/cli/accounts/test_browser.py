"""When a browser is started, and what others see of it."""

import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from trainhall.cli.accounts.browser import has_browser, open_link

LINK = "http://127.0.0.1:8000/login#code=secret&more"


class Browser(webbrowser.BaseBrowser):
    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Browser:
    """That of a person at a terminal of a desktop."""
    for name in ("SSH_CONNECTION", "SSH_TTY", "CI", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    made = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: made)
    monkeypatch.setattr(webbrowser, "open", made.open)
    return made


def test_link_is_no_argument_of_the_browser(browser: Browser) -> None:
    assert open_link(LINK)
    (opened,) = browser.opened
    assert "secret" not in opened
    page = Path(unquote(urlsplit(opened).path))
    assert page.stat().st_mode & 0o777 == 0o600
    assert 'href="http://127.0.0.1:8000/login#code=secret&amp;more"' in page.read_text()


def test_browser_of_the_terminal_is_not_started(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))
    assert not open_link(LINK)
    assert not browser.opened


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "SSH_TTY", "CI", "no display"])
def test_browser_without_a_person_is_not_started(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "no display":
        monkeypatch.delenv("DISPLAY")
    else:
        monkeypatch.setenv(name, "1")
    assert not open_link(LINK)
    assert not browser.opened
    monkeypatch.setattr(sys, "platform", "darwin")
    assert has_browser() is (name == "no display")


def test_link_is_printed_for_another_program(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert has_browser()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert not open_link(LINK)
    assert not browser.opened
