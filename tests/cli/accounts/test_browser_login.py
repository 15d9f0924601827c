"""`trainhall login` by a browser on the same host, and by a code."""

import html
import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs
from support.cluster.web import bearer, served
from support.login.pages import approve_by_code, page_of_commands
from support.waiting import PATIENCE
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.host.credentials import credentials_file, stored_token
from trainhall.api.settings import Settings
from trainhall.cli.accounts import browser_login
from trainhall.cli.base.errors import CliError, NotAllowedError, UsageError
from trainhall.cli.main import app
from trainhall.cluster.api_paths import API_PREFIX


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(folder: Path) -> FastAPI:
    database = f"sqlite:///{folder}/trainhall.db"
    made = create_app(Settings(data_dir=folder, database_url=database, auth="token"))
    made.state.command_logins.interval = 0
    return made


@pytest.fixture(scope="module")
def url(server: FastAPI) -> Iterator[str]:
    with capture_logs(), served(server) as address:
        yield address


@pytest.fixture
def browser(url: str, folder: Path) -> Iterator[httpx.Client]:
    """A browser that is logged in."""
    with httpx.Client(base_url=f"{url}{API_PREFIX}") as made:
        code = made.post("/auth/codes", headers=bearer(folder)).json()["code"]
        assert made.post("/auth/link", json={"code": code}).status_code == 204
        yield made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TRAINHALL_TOKEN", raising=False)
    monkeypatch.setattr(sys, "stdin", Terminal())


def run(*arguments: str) -> None:
    get_command(app).main([*arguments], prog_name="trainhall", standalone_mode=False)


def link_in(opened: str) -> str:
    """The link of the file that a browser opens: arguments show it to other users of the host."""
    text = Path(unquote(urlsplit(opened).path)).read_text()
    (link,) = re.findall(r'href="(.+)"', text)
    return html.unescape(link)


@pytest.mark.parametrize("approves", [True, False])
def test_browser_on_this_host_logs_in(
    url: str, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch, approves: bool
) -> None:
    monkeypatch.setattr(browser_login, "has_browser", lambda: True)
    opened: list[threading.Thread] = []

    def open_page(page: str) -> bool:
        # As a browser does: later, and elsewhere.
        thread = threading.Thread(target=page_of_commands, args=(browser, page, approves))
        opened.append(thread)
        thread.start()
        return True

    monkeypatch.setattr("webbrowser.open", lambda opened: open_page(link_in(opened)))
    if approves:
        run("login", url)
        token = stored_token(url)
        mine = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}{API_PREFIX}/auth/me", headers=mine).status_code == 200
        run("logout", "--url", url)
        assert httpx.get(f"{url}{API_PREFIX}/auth/me", headers=mine).status_code == 401
        assert json.loads(credentials_file().read_text()) == {}
    else:
        with pytest.raises(NotAllowedError, match="refused in the browser"):
            run("login", url)
    opened[0].join(PATIENCE)


@pytest.mark.parametrize("approves", [True, False])
def test_code_logs_in_from_any_host(
    url: str, server: FastAPI, browser: httpx.Client, approves: bool
) -> None:
    approver = threading.Thread(target=approve_by_code, args=(browser, server, approves))
    approver.start()
    if approves:
        run("login", "--code", url)
        assert stored_token(url) is not None
    else:
        with pytest.raises(NotAllowedError, match="refused in the browser"):
            run("login", "--code", url)
    approver.join(PATIENCE)


def test_foreign_pages_cannot_answer(
    url: str, monkeypatch: pytest.MonkeyPatch, browser: httpx.Client
) -> None:
    monkeypatch.setattr(browser_login, "has_browser", lambda: True)
    monkeypatch.setattr(browser_login, "BROWSER_SECONDS", 0.5)
    statuses: list[int] = []

    def open_page(page: str) -> bool:
        port = httpx.URL(page).params["port"]
        listener = f"http://127.0.0.1:{port}/?code=x"
        statuses.extend(httpx.get(each).status_code for each in (listener, f"{listener}&state=y"))
        return True

    monkeypatch.setattr("webbrowser.open", lambda opened: open_page(link_in(opened)))
    with pytest.raises(CliError, match="not approved"):
        run("login", url)
    assert statuses == [404, 404]


def test_code_and_paste_exclude_each_other(url: str) -> None:
    with pytest.raises(UsageError, match="either"):
        run("login", "--code", "--paste", url)
