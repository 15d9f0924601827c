"""When a browser is started, and what others see of it."""

import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from trainhall.cli.base.browser import has_desktop, open_link

LINK = "http://127.0.0.1:8000/login#code=secret&more"


class Browser(webbrowser.BaseBrowser):
    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A person at a terminal of a desktop."""
    for name in ("SSH_CONNECTION", "SSH_TTY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return monkeypatch


def test_link_is_no_argument_of_the_browser(desktop: pytest.MonkeyPatch) -> None:
    browser = Browser()
    desktop.setattr(webbrowser, "get", lambda: browser)
    assert open_link(LINK)
    (opened,) = browser.opened
    assert "secret" not in opened
    page = Path(unquote(urlsplit(opened).path))
    assert page.stat().st_mode & 0o777 == 0o600
    assert 'href="http://127.0.0.1:8000/login#code=secret&amp;more"' in page.read_text()


def test_browser_of_the_terminal_is_not_started(desktop: pytest.MonkeyPatch) -> None:
    desktop.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))
    assert not open_link(LINK)


def test_host_without_a_browser_opens_nothing(desktop: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise webbrowser.Error("none")

    desktop.setattr(webbrowser, "get", none)
    assert not open_link(LINK)


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "SSH_TTY", "no display", "no terminal"])
def test_no_desktop_no_browser(name: str, desktop: pytest.MonkeyPatch) -> None:
    assert has_desktop()
    if name == "no display":
        desktop.delenv("DISPLAY")
    elif name == "no terminal":
        desktop.setattr(sys.stdout, "isatty", lambda: False)
    else:
        desktop.setenv(name, "10.0.0.7 50000 10.0.0.8 22")
    assert not has_desktop()
