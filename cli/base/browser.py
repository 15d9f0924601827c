"""The browser of the person at this terminal."""

import html
import os
import sys
from pathlib import Path

from trainhall.api.host.config_file import user_data_dir
from trainhall.api.host.credentials import write_private

_PAGE = """<!doctype html>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<a href="{link}">Open Trainhall</a>
"""


def has_desktop() -> bool:
    """Return whether a person sits before a desktop of this host.

    Over SSH a browser would start on the wrong screen; without a terminal a program reads what a
    command prints.
    """
    if not sys.stdout.isatty() or {"SSH_CONNECTION", "SSH_TTY"} & os.environ.keys():
        return False
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def open_link(link: str) -> bool:
    """Open a login link in a browser; return whether one was started.

    The link goes through a file: other users of a host see the arguments of a browser.
    """
    import webbrowser

    if not has_desktop():
        return False
    try:
        browser = webbrowser.get()
        # A browser of the terminal would take it over.
        if type(browser) is webbrowser.GenericBrowser and "BROWSER" not in os.environ:
            return False
        return browser.open(_file_of(link).as_uri())
    except (webbrowser.Error, OSError):
        return False


def _file_of(link: str) -> Path:
    folder = user_data_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "login.html"
    write_private(path, _PAGE.format(link=html.escape(link)))
    return path
