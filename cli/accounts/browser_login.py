"""Logins of commands that a browser approves: on this host, or by a code on any."""

import base64
import hashlib
import html
import http.server
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

from trainhall.cli.accounts.browser import has_browser, open_page
from trainhall.cli.base import output as out
from trainhall.cli.base.errors import CliError, NotAllowedError

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

BROWSER_SECONDS = 300.0
"""Time for the user to log in and to approve."""
_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Trainhall</title>
<body style="font: 16px/1.5 system-ui, sans-serif; margin: 4rem auto; max-width: 40rem">
<h1>{title}</h1><p>You can close this page.</p>
"""


def new_token(url: str, *, by_code: bool) -> tuple[str, str]:
    """Return the id of a new API token, and the token, once a browser has approved it.

    Args:
        by_code: the browser is on another host.

    Raises:
        CliError: it was refused, or not approved in time.
    """
    return _by_code(url) if by_code or not has_browser() else _by_browser(url)


def _by_code(url: str) -> tuple[str, str]:
    with _client(url) as client:
        begun = client.request("POST", "/auth/device", json={"client": socket.gethostname()})
        out.notice(f"Open {begun['url']} and enter the code {begun['user_code']}")
        deadline = time.monotonic() + begun["expires_in"]
        while time.monotonic() < deadline:
            time.sleep(begun["interval"])
            body = {"device_code": begun["device_code"]}
            reply = client.request("POST", "/auth/device/token", json=body)
            if reply["state"] == "denied":
                raise NotAllowedError("the login was refused in the browser")
            if reply["state"] == "approved":
                return _made(reply["token"])
    raise CliError("the login was not approved in time; try again")


def _by_browser(url: str) -> tuple[str, str]:
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    client_name = socket.gethostname()
    with _listening(state) as listener:
        query = {
            "port": listener.server_port,
            "challenge": challenge,
            "state": state,
            "client": client_name,
        }
        page = f"{url}/login/commands?{urlencode(query)}"
        out.notice(f"Approve the login {challenge[:6]} in the browser. If none opens: {page}")
        open_page(page)
        if not listener.answered.wait(BROWSER_SECONDS):
            raise CliError("the login was not approved in time; try again, or use --code")
    if listener.code is None:
        raise NotAllowedError("the login was refused in the browser")
    body = {"code": listener.code, "verifier": verifier, "client": client_name}
    with _client(url) as client:
        return _made(client.request("POST", "/auth/browser/token", json=body))


def _client(url: str) -> "Client":
    from trainhall.cli.base.client import Client

    return Client(url, token="")


def _made(token: dict[str, Any]) -> tuple[str, str]:
    return str(token["id"]), str(token["token"])


class _Listener(http.server.ThreadingHTTPServer):
    """Waits on loopback for the page to send the browser back."""

    daemon_threads = True

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.state = state
        self.code: str | None = None
        self.answered = threading.Event()


class _Answer(http.server.BaseHTTPRequestHandler):
    server: _Listener
    timeout: ClassVar[float] = 10.0

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        known = secrets.compare_digest(query.get("state", [""])[0], self.server.state)
        if not known or self.server.answered.is_set():
            # Any page can send requests here; only that of this login knows the state.
            self.send_error(404)
            return
        self.server.code = query.get("code", [None])[0]
        done = self.server.code is not None
        page = _PAGE.format(title=html.escape("Logged in" if done else "Login refused")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(page)
        self.server.answered.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing on the terminal."""


@contextmanager
def _listening(state: str) -> Iterator[_Listener]:
    listener = _Listener(state)
    thread = threading.Thread(target=listener.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
