"""The browser of the person at this terminal."""

import html
import os
import sys
import webbrowser
from pathlib import Path

from trainhall.api.host.config_file import user_data_dir
from trainhall.api.host.credentials import write_private

_PAGE = """<!doctype html>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<a href="{link}">Open Trainhall</a>
"""


def has_browser() -> bool:
    """Return whether a browser of this user can be opened on this host."""
    if any(os.environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return False
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not shown:
        return False
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    # One of the terminal would take it over.
    return type(found) is not webbrowser.GenericBrowser or "BROWSER" in os.environ


def can_open() -> bool:
    """Return whether to open a browser: not if a program reads what this one prints."""
    return sys.stdout.isatty() and has_browser()


def open_link(link: str) -> bool:
    """Open a login link where `can_open`; return whether a browser was started."""
    return can_open() and open_page(link)


def open_page(link: str) -> bool:
    """Open a page in a browser, whose link is secret. It may take seconds.

    The link goes through a file: other users of a host see the arguments of a browser.

    Returns:
        Whether a browser was started.
    """
    try:
        return webbrowser.open(_file_of(link).as_uri())
    except OSError:
        return False


def _file_of(link: str) -> Path:
    folder = user_data_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "login.html"
    write_private(path, _PAGE.format(link=html.escape(link)))
    return path
